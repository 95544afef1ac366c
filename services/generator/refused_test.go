package generator

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// refusing answers with an error that is about the prompt.
func refusing(code int, says string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, says)
	}
}

// TestRefusedPrompt: what a tool has answered makes the server refuse the rest of a
// conversation that it has answered before. The episode ends as it stands, once the server has
// refused it in each try, and says so.
func TestRefusedPrompt(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	first := asking("[1,2,3]", "[4,5]", `"{}"`)
	filter := refusing(http.StatusForbidden, "The response was filtered by content management policy.")
	for name, c := range map[string]struct {
		answers []answer
		stop    string
		retried int
	}{
		"filtered": {[]answer{first, filter}, events.StopFiltered, tries - 1},
		"unknown": {[]answer{first, refusing(http.StatusBadRequest, "unexpected bytes")},
			events.StopRefused, tries - 1},
		"unprocessable": {[]answer{first, refusing(http.StatusUnprocessableEntity, "no")},
			events.StopRefused, tries - 1},
		"once": {[]answer{first, filter, ending("[1,2,3,4,5,6]", "[7,8]")}, events.StopFinished, 1},
	} {
		e := serve(t, c.answers...)
		open(t, log, name, e.URL, nil)
		answerTools(t, log, name, turns(t, log, name, 1)[0])
		if f, trajectory := finished(t, log, name); f.StopReason != c.stop ||
			trajectory.StopReason != c.stop || f.TextOnly {
			t.Errorf("%s: finished as %+v", name, f)
		}
		retried := servicetest.All(t, log, name, events.RolloutRetriedType)
		if len(retried) != c.retried {
			t.Errorf("%s: %d tries failed, want %d", name, len(retried), c.retried)
		}
		for _, e := range retried {
			if try := servicetest.Data[events.RolloutRetried](t, e); try.Class != events.ClassRefused {
				t.Errorf("%s: a try failed as %+v", name, try)
			}
		}
		if failed := servicetest.All(t, log, name, events.RolloutFailedType); len(failed) > 0 {
			t.Errorf("%s: the rollout failed", name)
		}
	}
	if !events.Untold(events.StopRefused) || events.Untold(events.StopFiltered) {
		t.Error("words that nobody knows may be the server's fault, those of a filter are about what the model did")
	}
}
