package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/probe"
)

// How long a server's distribution is taken as known. One that is wrong for a run is measured again
// soon, as operators start the server anew.
const (
	knownFor = time.Hour
	wrongFor = time.Minute
)

// distributions are what servers' log-probabilities count, by base URL and model.
type distributions struct {
	mu    sync.Mutex
	known map[string]*distribution
}

type distribution struct {
	mu    sync.Mutex
	at    time.Time // zero: not measured
	found probe.Distribution
}

func (d *distributions) entry(key string) *distribution {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[string]*distribution{}
	}
	if d.known[key] == nil {
		d.known[key] = &distribution{}
	}
	return d.known[key]
}

// checked is a call whose turns are trained on and sampled from another
// distribution than the model's own.
func (c Call) checked() bool {
	return c.Config.Epochs == 0 && len(c.Config.Feeds) > 0 && c.Config.Endpoint != runfile.BuiltinEndpoint &&
		len(c.Sampling.Reshaped()) > 0
}

// wrongFor names the settings for which the server's log-probabilities are wrong. The first turn of
// a run at a server measures that; a server that does not answer is taken at its word.
func (f *Fleet) wrongFor(ctx context.Context, client *inference.Client, c Call, at target) []string {
	if !c.checked() {
		return nil
	}
	d := f.distributions.entry(at.url + " " + at.model)
	d.mu.Lock()
	defer d.mu.Unlock()
	wrong := d.found.Wrong(c.Sampling)
	if age := time.Since(d.at); d.at.IsZero() || age > knownFor || len(wrong) > 0 && age > wrongFor {
		found, err := probe.Measure(ctx, func(ctx context.Context, request any) (*inference.Response, error) {
			answer, _, failure := f.request(ctx, client, at, request)
			if failure != nil {
				return nil, failure
			}
			answer.Done() // its few tokens need no budget
			return answer, nil
		}, at.modelName())
		if err != nil {
			return wrong
		}
		d.at, d.found = time.Now(), found
		if wrong = found.Wrong(c.Sampling); len(wrong) > 0 {
			f.opts.Logger.WarnContext(ctx, "logprobs mismatch sampling", "run", c.Run,
				"endpoint", at.url, "settings", wrong)
		}
	}
	return wrong
}

// TurnAs is the answer as the turn with a number. One whose log-probabilities are wrong has none,
// and no tokens: it is text only.
func (a *Answer) TurnAs(number int, version int64) (turn events.TurnSampled, prompt []int32, err error) {
	turn, prompt, err = a.Response.Turn(number, version, a.Started)
	if len(a.Wrong) > 0 {
		turn.TextOnly, turn.TokenIDs, turn.Logprobs, turn.VersionSpans, prompt = true, nil, nil, nil, nil
		turn.Lacks = append(turn.Lacks, events.LackProcessed)
	}
	return turn, prompt, err
}
