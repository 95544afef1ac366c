package dashboard

import (
	"fmt"
	"math"
	"time"

	"github.com/rondo-rl/rondo/export/episode"
)

// underWay is an answer that is being sampled, as far as the log has its pieces.
type underWay struct {
	Turn, Tokens, Parts int
	Versions            string
	Took                time.Duration
	Last                []token
	First, More         int // the place of the first of them, and how many tokens are before it
}

// lastTokens bounds the tokens of an answer under way that are shown.
const lastTokens = 200

// underWayOf is nil where no piece of the next answer is on the log, or where it
// will not be gone on with.
func (d *Dashboard) underWayOf(e *episode.Episode) *underWay {
	r := &e.Rollout
	if r.UnderWay == nil || r.Finished != nil || r.Failed != nil {
		return nil
	}
	u := r.UnderWay
	first := max(0, len(u.TokenIDs)-lastTokens)
	w := &underWay{Turn: u.Turn, Tokens: len(u.TokenIDs), Parts: u.Parts, Took: u.Took, First: first, More: first}
	from, to := u.Versions[0].Version, u.Versions[len(u.Versions)-1].Version
	switch {
	case from < 0 || to < 0:
		w.Versions = "version unknown"
	case from == to:
		w.Versions = fmt.Sprintf("version %d", to)
	default:
		w.Versions = fmt.Sprintf("versions %d to %d", from, to)
	}
	for i := first; i < len(u.TokenIDs); i++ {
		t := token{Text: fmt.Sprintf("#%d", u.TokenIDs[i]), Sampled: true, Chance: math.Exp(float64(u.Logprobs[i]))}
		if e.Spelled {
			t.Text = oneLine(d.tokenText(u.TokenIDs[i]))
		}
		t.Likely = likely(t.Chance)
		w.Last = append(w.Last, t)
	}
	return w
}
