// Simulates a message graph with SimGrid: host-to-host communications that start when the messages
// that they wait for have arrived, without actors.
//
//   simgrid_messages MODE TIMES GRAPH ROUTES ARRIVALS
//
// MODE is cm02 (SimGrid's CM02 with latencies on links) or fair (links without latency, and a timer for
// the latency of each message: pure max-min fairness). GRAPH is a text file with a topology, bandwidth and
// latency of its links, the number of messages, and a line per message: source, target, bytes, number of
// messages that it waits for, and these. ROUTES receives the links of every pair of hosts that
// exchanges a message, ARRIVALS the arrival times. The graph runs several times, one after the other, and
// the CPU seconds of one go to standard output.
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace sg = simgrid::s4u;

struct Message {
    int from, to;
    double bytes;
    int waits_for = 0;
    int pending = 0;
    double delay = 0;
    double arrival = -1;
    std::vector<int> followers;
};

static std::vector<Message> messages;
static std::vector<sg::Host*> hosts;
static std::unordered_map<const sg::Activity*, int> running;
static std::vector<sg::CommPtr> comms;
static bool is_fair;
static int times_left;
static size_t n_under_way;

static double cpu_seconds()
{
    rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + 1e-6 * (use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void flow(int number)
{
    Message& m = messages[number];
    comms[number] = sg::Comm::sendto_init(hosts[m.from], hosts[m.to]);
    comms[number]->set_payload_size(static_cast<uint64_t>(m.bytes));
    running[comms[number].get()] = number;
    comms[number]->vetoable_start();
}

static void begin(int number)
{
    if (is_fair)
        simgrid::kernel::timer::Timer::set(sg::Engine::get_clock() + messages[number].delay,
                                           [number] { flow(number); });
    else
        flow(number);
}

static void begin_all()
{
    n_under_way = messages.size();
    for (auto& m : messages)
        m.pending = m.waits_for;
    for (size_t i = 0; i < messages.size(); i++)
        if (messages[i].waits_for == 0)
            begin(static_cast<int>(i));
}

static void arrive(int number)
{
    if (messages[number].arrival < 0)
        messages[number].arrival = sg::Engine::get_clock();
    for (int next : messages[number].followers)
        if (--messages[next].pending == 0)
            begin(next);
    if (--n_under_way == 0 && --times_left > 0)
        begin_all();
}

static sg::NetZone* make_zone(std::istringstream& words, double bandwidth, double latency)
{
    std::string kind;
    words >> kind;
    auto policy = sg::Link::SharingPolicy::SPLITDUPLEX;
    auto host_of = [](sg::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
        sg::Host* host = zone->create_host("h" + std::to_string(id), 1e9);
        return std::make_pair(host->get_netpoint(), static_cast<simgrid::kernel::routing::NetPoint*>(nullptr));
    };
    sg::ClusterCallbacks callbacks(host_of);
    if (kind == "star") {
        int n;
        words >> n;
        sg::NetZone* zone = sg::create_star_zone("net");
        for (int i = 0; i < n; i++) {
            sg::Host* host = zone->create_host("h" + std::to_string(i), 1e9);
            auto link = zone->create_split_duplex_link("l" + std::to_string(i), bandwidth)->set_latency(latency)->seal();
            zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {{link, sg::LinkInRoute::Direction::UP}}, true);
        }
        return zone;
    }
    std::vector<unsigned int> n(4);
    for (auto& number : n)
        words >> number;
    if (kind == "fat_tree")  // hosts per leaf, leaves, spines
        return sg::create_fatTree_zone("net", nullptr, {2, {n[0], n[1]}, {1, n[2]}, {1, 1}}, callbacks, bandwidth, latency, policy);
    if (kind == "torus")
        return sg::create_torus_zone("net", nullptr, {n[0], n[1]}, callbacks, bandwidth, latency, policy);
    // dragonfly: groups, chassis, routers per chassis, hosts per router
    return sg::create_dragonfly_zone("net", nullptr, {{n[0], 1}, {n[1], 1}, {n[2], 1}, n[3]}, callbacks, bandwidth, latency, policy);
}

int main(int argc, char** argv)
{
    sg::Engine engine(&argc, argv);
    is_fair = std::string(argv[1]) == "fair";
    for (const char* setting : {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e18", "surf/precision:1e-12"})
        sg::Engine::set_config(setting);
    const int times = times_left = std::atoi(argv[2]);
    std::ifstream graph(argv[3]);
    std::string topology;
    std::getline(graph, topology);
    double bandwidth, latency;
    size_t n_messages;
    graph >> bandwidth >> latency >> n_messages;
    std::istringstream words(topology);
    sg::NetZone* zone = make_zone(words, bandwidth, is_fair ? 0 : latency);
    zone->seal();
    for (size_t i = 0; i < engine.get_host_count(); i++)
        hosts.push_back(engine.host_by_name("h" + std::to_string(i)));
    messages.resize(n_messages);
    comms.resize(n_messages);
    for (size_t i = 0; i < n_messages; i++) {
        Message& m = messages[i];
        graph >> m.from >> m.to >> m.bytes >> m.waits_for;
        for (int j = 0; j < m.waits_for; j++) {
            int before;
            graph >> before;
            messages[before].followers.push_back(static_cast<int>(i));
        }
    }
    std::ofstream routes(argv[4]);
    std::map<std::pair<int, int>, size_t> lengths;
    for (auto& m : messages) {
        auto [found, is_new] = lengths.try_emplace({m.from, m.to}, 0);
        if (is_new) {
            std::vector<sg::Link*> links;
            double none = 0;
            hosts[m.from]->route_to(hosts[m.to], links, &none);
            found->second = links.size();
            routes << m.from << ' ' << m.to;
            for (auto* link : links)
                routes << ' ' << link->get_name();
            routes << '\n';
        }
        m.delay = latency * static_cast<double>(found->second);
    }
    sg::Activity::on_completion_cb([](sg::Activity const& activity) {
        auto found = running.find(&activity);
        if (found != running.end()) {
            int number = found->second;
            running.erase(found);
            arrive(number);
        }
    });
    double before = cpu_seconds();
    begin_all();
    engine.run();
    std::printf("%.9f\n", (cpu_seconds() - before) / times);
    std::ofstream arrivals(argv[5]);
    arrivals.precision(17);
    for (auto& m : messages)
        arrivals << m.arrival << '\n';
    return 0;
}
