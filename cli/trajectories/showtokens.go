package trajectories

import (
	"fmt"
	"math"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/storage"
)

// nearlyCertain is the probability from which on a token is shown without it.
const nearlyCertain = 0.995

// tokenRows shows the tokens of a message, coloured by the probability with which the sampler
// chose each. spelled says that the built-in policy sampled them: of other vocabularies
// nothing is known but the ids.
func tokenRows(m storage.Message, spelled bool) []app.Row {
	if len(m.TokenIDs) == 0 {
		return []app.Row{{{Text: "no tokens were recorded", Style: app.Faint}}}
	}
	var tokens app.Row
	sum, least, sampled := 0.0, math.Inf(1), 0
	for i, id := range m.TokenIDs {
		text := fmt.Sprintf("#%d", id)
		if spelled {
			text = tokenText(id)
		}
		if !m.LossMask[i] {
			tokens = append(tokens, app.Span{Text: text + " ", Style: app.Faint})
			continue
		}
		logprob := float64(m.Logprobs[i])
		sum, least, sampled = sum+logprob, min(least, logprob), sampled+1
		p := math.Exp(logprob)
		if p < nearlyCertain {
			text += fmt.Sprintf("(%.3f)", p)
		}
		tokens = append(tokens, app.Span{Text: text + " ", Style: likelihood(p)})
	}
	summary := fmt.Sprintf("%d tokens, none of them in the loss mask", len(m.TokenIDs))
	if sampled > 0 {
		summary = fmt.Sprintf("%d tokens sampled; log-probability %.4g in all, %.4g on average, %.4g at least (a token without a number: %g or more)",
			sampled, sum, sum/float64(sampled), least, nearlyCertain)
	}
	return []app.Row{{{Text: summary, Style: app.Faint}}, tokens}
}

// tokenText spells a token of the built-in policy on one line.
func tokenText(id int32) string {
	switch text := policy.TokenText(id); text {
	case "\n":
		return "⏎"
	case " ":
		return "␣"
	default:
		return strings.ReplaceAll(app.Clean(text), "\t", "⇥")
	}
}

func likelihood(p float64) app.Style {
	switch {
	case p >= 0.9:
		return app.Green
	case p >= 0.5:
		return app.Yellow
	case p >= 0.1:
		return app.Magenta
	}
	return app.Red
}
