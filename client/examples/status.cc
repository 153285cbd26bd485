// From C++: how many conversations a server has, by any method of the .proto files.
//
//   c++ status.cc $(pkg-config --cflags --libs parley) -o status
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <parley.h>

int main(int argc, char **argv)
{
    std::unique_ptr<parley_channel, decltype(&parley_channel_close)> channel(
        parley_channel_open(argc > 1 ? argv[1] : "127.0.0.1:8001"), parley_channel_close);
    parley_error err{};
    void *data = nullptr;
    size_t len = 0;

    if (channel == nullptr || parley_channel_wait(channel.get(), 10000, &err) != PARLEY_OK ||
        parley_unary(channel.get(), "/parley.v1.Admin/Status", "", 0, 5000, &data, &len, &err) != PARLEY_OK) {
        std::fprintf(stderr, "%s: %s\n", parley_status_name(err.status), err.text);
        return 1;
    }
    std::printf("a status of %zu bytes\n", len);
    std::free(data);
}
