package browser

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestGuard asks servers on different addresses, with the method that a page can use without asking
// and with one that it can read the answer of.
func TestGuard(t *testing.T) {
	const own, network = "127.0.0.1:8700", "0.0.0.0:8700"
	for name, c := range map[string]struct {
		listen, host string
		header       map[string]string
		refused      bool
	}{
		"a client here": {own, "127.0.0.1:8700", nil, false},
		"localhost":     {own, "localhost:8700", nil, false},
		"IPv6":          {"[::1]:8700", "[::1]:8700", nil, false},
		"rebound":       {own, "evil.example:8700", nil, true},
		"rebound, IPv6": {"[::1]:8700", "evil.example:8700", nil, true},
		"rebound, from its own page": {own, "evil.example:8700",
			map[string]string{"Origin": "http://evil.example:8700"}, true},
		"a page of elsewhere": {own, "127.0.0.1:8700",
			map[string]string{"Origin": "https://evil.example"}, true},
		"a file": {own, "127.0.0.1:8700", map[string]string{"Origin": "null"}, true},
		"a page of another port": {own, "127.0.0.1:8700",
			map[string]string{"Origin": "http://127.0.0.1:3000"}, true},
		"its own page": {own, "127.0.0.1:8700",
			map[string]string{"Origin": "http://127.0.0.1:8700"}, false},
		"a container's name":               {network, "policy:8700", nil, false},
		"a container's name with a dot":    {network, "policy.:8700", nil, false},
		"a name in a cluster":              {network, "policy.rondo.svc.cluster.local:8700", nil, false},
		"a container's host":               {network, "host.docker.internal:8700", nil, false},
		"an address":                       {network, "10.0.0.7:8700", nil, false},
		"an address of IPv6":               {network, "[fd00::7]:8700", nil, false},
		"an address with a zone":           {network, "[fe80::7%eth0]:8700", nil, false},
		"a health check":                   {network, "127.0.0.1:9100", nil, false},
		"a client without a host":          {network, "", nil, false},
		"a listed name":                    {network, "node1.corp.example:9100", nil, false},
		"a listed name, spelled otherwise": {network, "NODE1.corp.example.", nil, false},
		"a listed name of a proxy here":    {own, "node1.corp.example", nil, false},
		"a name below a listed one":        {network, "x.node1.corp.example:9100", nil, true},
		"a page of a listed name's other one": {network, "node1.corp.example",
			map[string]string{"Origin": "http://other.corp.example"}, true},
		"rebound to the network":       {network, "evil.example:8700", nil, true},
		"rebound to an address":        {"10.0.0.7:8700", "evil.example:8700", nil, true},
		"rebound, without a port":      {network, "evil.example", nil, true},
		"rebound, with a dot":          {network, "evil.example.:8700", nil, true},
		"rebound, like a private name": {network, "evil.internal.example:8700", nil, true},
		"rebound, like an address":     {network, "10.0.0.7.evil.example:8700", nil, true},
		"elsewhere, and a page of elsewhere": {network, "policy:8700",
			map[string]string{"Origin": "https://evil.example"}, true},
		"an address, and a page of elsewhere": {"10.0.0.7:8700", "10.0.0.7:8700",
			map[string]string{"Origin": "https://evil.example"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			address, err := net.ResolveTCPAddr("tcp", c.listen)
			if err != nil {
				t.Fatal(err)
			}
			served := 0
			guarded := Guard(address, []string{"node1.corp.example"},
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				r := httptest.NewRequest(method, "/metrics", nil)
				r.Host = c.host
				for k, v := range c.header {
					r.Header.Set(k, v)
				}
				w := httptest.NewRecorder()
				served = 0
				guarded.ServeHTTP(w, r)
				if refused := w.Code == http.StatusForbidden && served == 0; refused != c.refused ||
					!refused && served != 1 {
					t.Errorf("%s, %s: answered %d, want refused: %v", name, method, w.Code, c.refused)
				}
			}
		})
	}
}

// TestFetchMetadata: a form on a page sends no Origin in some browsers, and
// says Sec-Fetch-Site instead.
func TestFetchMetadata(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	r.Host = "127.0.0.1:8700"
	if reason := Check(r); reason != "" {
		t.Errorf("no browser: %s", reason)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if Check(r) == "" {
		t.Error("a form of another site is answered")
	}
}
