package delta

import (
	"context"
	"fmt"
	"io"
)

// Fold writes one delta that leads where several lead one after the other, oldest first.
// It takes no checkpoint. Each must have been made from the checkpoint that the one
// before leads to: ErrBase.
func Fold(ctx context.Context, w io.Writer, deltas ...*Delta) error {
	if err := fold(ctx, w, deltas); err != nil {
		return fmt.Errorf("fold %d deltas: %w", len(deltas), err)
	}
	return nil
}

func fold(ctx context.Context, w io.Writer, deltas []*Delta) error {
	if len(deltas) == 0 {
		return fmt.Errorf("there are none")
	}
	last := deltas[len(deltas)-1]
	named := make([]map[string]*Tensor, len(deltas))
	for i, d := range deltas {
		named[i] = map[string]*Tensor{}
		for _, t := range d.Tensors {
			named[i][t.Name] = t
		}
	}
	tensors := make([]*written, len(last.Tensors))
	for i, t := range last.Tensors {
		folded, err := trace(t, deltas, named)
		if err != nil {
			return err
		}
		tensors[i] = folded
	}
	return write(ctx, w, last.files, tensors, foldChunk)
}

// trace follows a tensor back to the base, or to where it was written whole.
func trace(t *Tensor, deltas []*Delta, named []map[string]*Tensor) (*written, error) {
	folded := &written{Tensor: *t, given: true}
	folded.sizes = nil
	for i := len(deltas) - 1; ; i-- {
		folded.chain, folded.chainOf = append(folded.chain, t), append(folded.chainOf, deltas[i])
		folded.From, folded.Old = t.From, t.Old
		if t.From == "" || i == 0 {
			return folded, nil
		}
		before, ok := named[i-1][t.From]
		if !ok || before.New != t.Old || before.Size != t.Size || before.Dtype != t.Dtype {
			return nil, fmt.Errorf("tensor %.80q of delta %d: %w", t.Name, i+1, ErrBase)
		}
		t = before
	}
}

// foldChunk adds up a chunk's differences.
func foldChunk(c *codec, t *written, i int) ([]byte, error) {
	var digest Digest
	whole, frames := false, 0
	sum := zeroed(&c.new, t.chunkSize(i))
	for at := len(t.chain) - 1; at >= 0; at-- { // oldest first
		step := t.chain[at]
		if step.sizes[i] == 0 {
			continue
		}
		frame, err := t.chainOf[at].readFrame(c, step, i)
		if err != nil {
			return nil, err
		}
		if step.From == "" && frame[0] != full {
			return nil, corrupt("chunk %d is a difference to nothing", i)
		}
		if frames++; at == 0 && frames == 1 {
			return frame, nil // as it is
		}
		whole = whole || frame[0] == full
		digest = Digest(frame[1:frameHead])
		if err := c.apply(frame, sum, width(t.Dtype)); err != nil {
			return nil, err
		}
	}
	if frames == 0 {
		return nil, nil
	}
	if whole {
		if digestOf(sum) != digest {
			return nil, corrupt("chunk %d has another digest", i)
		}
		return c.encodeFull(sum, width(t.Dtype), digest), nil
	}
	return c.encode(zeroed(&c.old, len(sum)), sum, width(t.Dtype), digest, false), nil
}
