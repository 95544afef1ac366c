package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
)

// What the advantage calculator could not work with is refused before there is a run.
func TestEstimatorsOfARun(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	for name, c := range map[string]struct {
		advantage runfile.Advantage
		want      []string // parts of the refusal
	}{
		"unknown estimator": {runfile.Advantage{Estimator: "ppo"}, []string{"run new", `"ppo"`, "mean_centred"}},
		"unknown parameter": {runfile.Advantage{Estimator: "rloo", Params: map[string]any{"eps": 1}},
			[]string{"run new", "rloo", `"eps"`, "takes none"}},
		"value out of bounds": {runfile.Advantage{Estimator: "rae", Params: map[string]any{"decay": 2}},
			[]string{"decay", "2", "0 to 1"}},
		"value of another kind": {runfile.Advantage{Estimator: "std_normalised", Params: map[string]any{"eps_at": 1}},
			[]string{"eps_at", "outside, inside, max"}},
	} {
		answer := send(t, log, submission{subject: "rondo.in.new.run.new.opened",
			body: openedBody(t, func(cfg *runfile.RunConfig) { cfg.Advantage = c.advantage })})
		for _, part := range c.want {
			if !strings.Contains(answer.Error, part) {
				t.Errorf("%s: the refusal does not say %q: %+v", name, part, answer)
			}
		}
	}
	body := openedBody(t, func(*runfile.RunConfig) {})
	preset := strings.Replace(body, `"estimator":"mean_centred"`, `"estimator":"mean_centred","preset":"verl"`, 1)
	if answer := send(t, log, submission{subject: "rondo.in.new.run.new.opened", body: preset}); preset == body ||
		!strings.Contains(answer.Error, "preset") {
		t.Errorf("a preset, which only a run file has: %+v", answer)
	}
	answer := send(t, log, submission{subject: "rondo.in.new.run.new.opened",
		body: openedBody(t, func(cfg *runfile.RunConfig) {
			cfg.Advantage = runfile.Advantage{Estimator: "std_normalised",
				Params: map[string]any{"ddof": 0, "eps": 1e-8, "eps_at": "max"}}
		})})
	if answer.Error != "" {
		t.Errorf("a good estimator is refused: %+v", answer)
	}
}
