package doctor

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestStoreDoesNotAnswer: the store takes connections and never answers. Doctor says so, once for
// the runs, and reports all that the log knows of these.
func TestStoreDoesNotAnswer(t *testing.T) {
	before := storePatience
	t.Cleanup(func() { storePatience = before })
	storePatience = 300 * time.Millisecond
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	bucket := fmt.Sprintf("s3://rondo?endpoint=http://%s", deaf.Addr())
	wantFinding(t, tryObjects(t.Context(), bucket), "store", levelTrouble, "s3://rondo does not answer within 300ms",
		"see that the server runs")

	r := clitest.NewRecorded(t)
	for _, run := range []string{"paused", "sealed"} {
		servicetest.OpenRun(t, r.Log, run, servicetest.Config("fix-a"))
		if _, err := r.Log.Appender.Seal(t.Context(), run, true); err != nil {
			t.Fatal(err)
		}
	}
	servicetest.Append(t, r.Log, servicetest.Event(t, "paused", events.RunPausedType, "paused",
		"0", events.RunPaused{Reason: "for lunch"}))
	e, err := plane.ReadEndpoint(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	found := tryRuns(t.Context(), e.NATS, app.NATSAccess{}, bucket)
	wantFinding(t, found, "runs", levelWarning, "run paused is paused: for lunch", "rondo run resume paused")
	away := 0
	for _, f := range found {
		if strings.Contains(f.Found, "not compared with its archive") {
			away++
		}
	}
	if away != 1 {
		t.Errorf("that the store is away is said %d times: %+v", away, found)
	}
}
