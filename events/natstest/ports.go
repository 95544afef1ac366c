package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePorts finds ports of the loopback interface that nobody listens on, for servers that are
// stopped and come back. They lie below those that systems give to outgoing connections (from
// 32768 on Linux, 49152 elsewhere): one of these could take the port in between. So could another
// test, in a process of its own: until the test ends, its ports of UDP are taken as the sign that
// those of TCP are given away.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range 100 * n {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		sign, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		t.Cleanup(func() { sign.Close() })
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		l.Close()
		if ports = append(ports, l.Addr().(*net.TCPAddr).Port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("%d ports of %d are free", len(ports), n)
	return nil
}
