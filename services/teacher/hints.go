package teacher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/storage"
)

// errHints means that hints cannot be asked about, now or later.
var errHints = errors.New("hints cannot be scored")

// prompt is what a server is asked about at once: tokens, of which the last ones are wanted, with a
// hint somewhere before these.
type prompt struct {
	sample []int32
	hint   *storage.Hint
	wanted int
}

// prompts are one for each sample, or for each hint: its sample up to the end of the
// span. No hint sees another.
func (w work) prompts(samples []storage.Sample) (list []prompt, err error) {
	if w.hints == nil {
		for i := range samples {
			list = append(list, prompt{sample: samples[i].Tokens, wanted: len(samples[i].Tokens)})
		}
		return list, nil
	}
	rows, err := w.hints.Rows(samples)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHints, err) // the intake has let none in that does not fit
	}
	for i, hints := range rows {
		for k := range hints {
			h := &hints[k]
			list = append(list, prompt{samples[i].Tokens[:h.Start+h.Length], h, int(h.Length)})
		}
	}
	return list, nil
}

// tokens are what the server is asked about: the sample's, with the hint inserted.
func (p prompt) tokens(ctx context.Context, client inference.Client, t runfile.Teacher) ([]int32, error) {
	if p.hint == nil {
		return p.sample, nil
	}
	inserted := p.hint.Tokens
	if len(inserted) == 0 {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		var err error
		if inserted, err = client.Tokenize(ctx, t, p.hint.Text); err != nil {
			return nil, err
		}
		if len(inserted) == 0 || len(inserted) > mostInserted {
			return nil, fmt.Errorf("%w: %s makes %d tokens of a text of %d bytes", errHints, t.Name,
				len(inserted), len(p.hint.Text))
		}
	}
	return slices.Concat(p.sample[:p.hint.At], inserted, p.sample[p.hint.At:]), nil
}

// mostInserted bounds the tokens of a text. A byte may take more than one, as an unknown
// character of a small vocabulary.
const mostInserted = 4 * events.MaxHintText
