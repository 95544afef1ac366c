package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/rondo-rl/rondo/policy"
	"github.com/rondo-rl/rondo/storage"
)

// nearlyCertain is the probability from which on a token is shown without it.
const nearlyCertain = 0.995

// tokenRows shows the tokens of a message, coloured by the probability with which the sampler chose each. spelled says that the
// built-in policy sampled them: of other vocabularies nothing is known but the ids.
func tokenRows(m storage.Message, spelled bool) []row {
	if len(m.TokenIDs) == 0 {
		return []row{{{"no tokens were recorded", faint}}}
	}
	var tokens row
	sum, least, sampled := 0.0, math.Inf(1), 0
	for i, id := range m.TokenIDs {
		text := fmt.Sprintf("#%d", id)
		if spelled {
			text = tokenText(id)
		}
		if !m.LossMask[i] {
			tokens = append(tokens, span{text + " ", faint})
			continue
		}
		logprob := float64(m.Logprobs[i])
		sum, least, sampled = sum+logprob, min(least, logprob), sampled+1
		p := math.Exp(logprob)
		if p < nearlyCertain {
			text += fmt.Sprintf("(%.3f)", p)
		}
		tokens = append(tokens, span{text + " ", likelihood(p)})
	}
	summary := fmt.Sprintf("%d tokens, none of them sampled", len(m.TokenIDs))
	if sampled > 0 {
		summary = fmt.Sprintf("%d tokens sampled; log-probability %.4g in all, %.4g on average, %.4g at least (a token without a number: %g or more)",
			sampled, sum, sum/float64(sampled), least, nearlyCertain)
	}
	return []row{{{summary, faint}}, tokens}
}

// tokenText spells a token of the built-in policy on one line.
func tokenText(id int32) string {
	switch text := policy.TokenText(id); text {
	case "\n":
		return "⏎"
	case " ":
		return "␣"
	default:
		return strings.ReplaceAll(clean(text), "\t", "⇥")
	}
}

func likelihood(p float64) style {
	switch {
	case p >= 0.9:
		return green
	case p >= 0.5:
		return yellow
	case p >= 0.1:
		return magenta
	}
	return red
}
