package embedded_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestJoiningIsNoRefusal: a server that has not found its cluster complains, and
// refuses no writes for that.
func TestJoiningIsNoRefusal(t *testing.T) {
	ports := natstest.FreePorts(t, 2)
	s, err := server.NewServer(&server.Options{
		ServerName: "alone", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(),
		Cluster: server.ClusterOpts{Name: "rondo", Host: "127.0.0.1", Port: ports[0]},
		Routes:  []*url.URL{{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", ports[1])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	complains := func() string {
		answer := httptest.NewRecorder()
		s.HandleHealthz(answer, httptest.NewRequest(http.MethodGet, "/healthz?details=true", nil))
		return answer.Body.String()
	}
	natstest.Eventually(t, "the server misses the others",
		func() bool { return strings.Contains(complains(), "JETSTREAM") })
	if refusing, err := embedded.ReadHealth([]byte(complains())); len(refusing) > 0 || err != nil {
		t.Errorf("%s\nis read as %v, %v", complains(), refusing, err)
	}
}
