package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePorts finds ports of the loopback interface that nobody listens on, for servers that are stopped and come back. They lie below
// those that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere): one of these could take the port in between.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range 100 * n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err != nil {
			continue
		}
		defer l.Close() // all at the end, so that none is found twice
		if ports = append(ports, l.Addr().(*net.TCPAddr).Port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("%d ports of %d are free", len(ports), n)
	return nil
}
