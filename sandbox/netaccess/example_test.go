package netaccess_test

import (
	"fmt"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
)

// A network is a list of hosts and package registries.
func Example() {
	network := &netaccess.Network{Allow: []string{"pypi", "*.example.org"}}
	fmt.Println(network.AllowsRegistry("pypi"), network.AllowsHost("files.example.org", 443),
		network.AllowsHost("example.org", 443))
	// Output:
	// true true false
}
