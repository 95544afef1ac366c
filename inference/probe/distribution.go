package probe

import (
	"context"
	"math"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Verdict is of which distribution log-probabilities are.
type Verdict string

// Verdicts.
const (
	Raw       Verdict = "raw"       // of the model, before the setting has its effect
	Processed Verdict = "processed" // of what was sampled
	Unknown   Verdict = "unknown"   // the server's answers do not tell
)

// Distribution is what a server's log-probabilities count.
type Distribution struct {
	Temperature Verdict `json:"temperature"`
	Truncation  Verdict `json:"truncation"` // by top_p, top_k, min_p and penalties
}

// Wrong names the settings of a run for which the log-probabilities are wrong: an importance ratio
// would be taken to another distribution than the one that was sampled.
func (d Distribution) Wrong(s runfile.Sampling) (names []string) {
	if d.Temperature == Raw && s.Temperature != 1 {
		names = append(names, "temperature")
	}
	if d.Truncation == Raw {
		names = append(names, s.Truncated()...)
	}
	return names
}

// coldTemperature is low enough to tell its distribution from that of temperature 1: differences of
// log-probabilities double.
const coldTemperature = 0.5

// alternatives is how many tokens are asked for at the first position.
const alternatives = 5

// Measure asks for the first token of the same answer three times: plainly, at another temperature,
// and with all tokens but one cut off. Its error is the *inference.Failure of the first of them;
// that a server refuses the others leaves their verdict unknown.
func Measure(ctx context.Context, ask Ask, model string) (Distribution, error) {
	d := Distribution{Unknown, Unknown}
	plain := runfile.NeutralSampling()
	plain.MaxTokens = 1
	base, err := firstToken(ctx, ask, model, plain)
	if err != nil {
		return d, err
	}
	cold := plain
	cold.Temperature = coldTemperature
	if other, err := firstToken(ctx, ask, model, cold); err == nil {
		d.Temperature = temperatureOf(base, other)
	}
	single := plain
	single.TopK = new(1)
	if other, err := firstToken(ctx, ask, model, single); err == nil {
		d.Truncation = truncationOf(base, other)
	}
	return d, ctx.Err()
}

// firstToken are the log-probabilities of the first position, by the text of the token.
func firstToken(ctx context.Context, ask Ask, model string, s runfile.Sampling) (map[string]float64, error) {
	answer, err := ask(ctx, inference.Request{
		Model: model, Messages: []inference.Message{{Role: "user", Content: "Write one word, whichever you like."}},
		Sample: inference.NewSample(s), Logprobs: true, TopLogprobs: alternatives,
		// as turns are asked for
		ReturnTokenIDs: true, ReturnPromptTokenIDs: true, ReturnMetaInfo: true, ReturnWeightVersions: true,
	})
	if err != nil {
		return nil, err
	}
	tokens := map[string]float64{}
	if len(answer.Choices) != 1 || len(answer.Choices[0].Logprobs.Content) == 0 {
		return tokens, nil
	}
	first := answer.Choices[0].Logprobs.Content[0]
	if first.Logprob != nil {
		tokens[first.Token] = float64(*first.Logprob)
	}
	for _, t := range first.Top {
		if t.Logprob != nil {
			tokens[t.Token] = float64(*t.Logprob)
		}
	}
	for token, logprob := range tokens {
		one := []float32{float32(logprob)}
		if tokencheck.Round(one); tokencheck.Scored(one) != nil {
			delete(tokens, token)
		}
	}
	return tokens, nil
}

// temperatureOf compares the largest difference between two tokens that both answers have: the same
// for raw log-probabilities, and divided by the temperature for processed ones.
func temperatureOf(base, cold map[string]float64) Verdict {
	var before, after float64
	for a := range base {
		for b := range base {
			_, hasA := cold[a]
			_, hasB := cold[b]
			if diff := base[a] - base[b]; hasA && hasB && diff > before {
				before, after = diff, cold[a]-cold[b]
			}
		}
	}
	if before < 0.05 { // as good as equal: rounding could say anything
		return Unknown
	}
	switch ratio := after / before; {
	case math.Abs(ratio-1) < 0.25:
		return Raw
	case math.Abs(ratio-1/coldTemperature) < 0.5:
		return Processed
	}
	return Unknown
}

// truncationOf looks at what is left when one token alone may be sampled: it is certain, unless the
// log-probabilities are raw.
func truncationOf(base, single map[string]float64) Verdict {
	if len(base) < 2 || len(single) == 0 {
		return Unknown
	}
	best := math.Inf(-1)
	for _, logprob := range single {
		best = max(best, logprob)
	}
	if len(single) == 1 && best > -0.001 {
		return Processed
	}
	for token, logprob := range single {
		if before, ok := base[token]; !ok || math.Abs(before-logprob) > 0.1+0.05*math.Abs(before) {
			return Unknown
		}
	}
	return Raw
}
