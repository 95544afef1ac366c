package dashboard

import (
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/storage"
)

const tokensPage = 1000

// token is one token with the probability with which the sampler chose it.
type token struct {
	Text    string
	Sampled bool
	Chance  float64
	Likely  string // a class of the style sheet
}

// tokens shows the tokens of one message. Only those of the built-in policy have texts: of other
// vocabularies nothing is known but the ids.
func (d *Dashboard) tokens(w http.ResponseWriter, r *http.Request) error {
	e, m, err := d.one(r)
	if err != nil {
		return err
	}
	p, err := paged(r, "page", len(m.TokenIDs), tokensPage)
	if err != nil {
		return err
	}
	masked := maskedBy(e, m)
	list := []token{}
	for i := p.From; i < p.To; i++ {
		t := token{Text: fmt.Sprintf("#%d", m.TokenIDs[i]), Sampled: m.LossMask[i], Likely: "prompt"}
		if e.Spelled {
			t.Text = oneLine(d.tokenText(m.TokenIDs[i]))
		}
		if masked != "" {
			t.Sampled, t.Chance, t.Likely = true, math.Exp(float64(m.Logprobs[i])), "masked"
		} else if t.Sampled {
			t.Chance = math.Exp(float64(m.Logprobs[i]))
			t.Likely = likely(t.Chance)
		}
		list = append(list, t)
	}
	return d.page(w, http.StatusOK, "tokens", map[string]any{"Title": fmt.Sprintf("Tokens of turn %d", m.Turn),
		"Here": "runs", "Run": r.PathValue("run"), "Rollout": e.Rollout.ID,
		"Turn": m.Turn, "Tokens": list, "Pager": p, "First": p.From, "Masked": line(masked)})
}

// maskedBy is the rule for which the run does not train on a turn, "" for none. Of a rollout
// without a trajectory file the turns say it.
func maskedBy(e *episode.Episode, m storage.Message) string {
	if m.Role != "assistant" {
		return ""
	}
	if e.Recorded {
		return e.Trajectory.Masked[m.Segment]
	}
	for _, turn := range e.Rollout.Turns {
		if turn.Turn == int(m.Turn) {
			return turn.MaskedBy()
		}
	}
	return ""
}

// oneLine writes the text of a token on one line.
func oneLine(text string) string {
	switch text {
	case "\n":
		return "⏎"
	case " ":
		return "␣"
	default:
		return strings.ReplaceAll(clip(text, 100), "\t", "⇥")
	}
}

func likely(p float64) string {
	switch {
	case p >= 0.9:
		return "p90"
	case p >= 0.5:
		return "p50"
	case p >= 0.1:
		return "p10"
	}
	return "p0"
}
