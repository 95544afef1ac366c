package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// FingerprintName is the file of a version that holds its Fingerprint.
const FingerprintName = "fingerprint.json"

// Fingerprint is what a trainer says of its weights: the log-probabilities that they give to the
// tokens of a text. A server that answers that it has taken up weights, and has not, gives others.
type Fingerprint struct {
	Tokens []int32 `json:"tokens"`
	// Logprobs are those of the tokens behind the first one.
	Logprobs []float64 `json:"logprobs"`
	// Tolerance is how far the server's may be from them on average: its arithmetic is another one.
	Tolerance float64 `json:"tolerance"`
}

const (
	maxProbe           = 4096 // tokens
	maxFingerprintSize = 1 << 20
)

// readFingerprint reads the fingerprint of a version; nil where it has none.
func readFingerprint(dir string) (*Fingerprint, error) {
	name := filepath.Join(dir, FingerprintName)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxFingerprintSize {
		err = fmt.Errorf("%s has %d bytes (limit %d)", name, info.Size(), maxFingerprintSize)
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &Fingerprint{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func (f *Fingerprint) check() error {
	switch {
	case len(f.Tokens) < 2 || len(f.Tokens) > maxProbe || len(f.Logprobs) != len(f.Tokens)-1:
		return fmt.Errorf("%d tokens with %d log-probabilities: want 2 to %d tokens, and one for each behind the first",
			len(f.Tokens), len(f.Logprobs), maxProbe)
	case !(f.Tolerance > 0 && f.Tolerance <= 10):
		return fmt.Errorf("tolerance %v: want more than 0, at most 10", f.Tolerance)
	}
	logprobs := make([]float32, len(f.Logprobs))
	for i, l := range f.Logprobs {
		logprobs[i] = float32(l)
	}
	tokencheck.Round(logprobs)
	return errors.Join(tokencheck.IDs(f.Tokens), tokencheck.Scored(logprobs))
}

// errOther means that a server computes with other weights than it says.
var errOther = errors.New("fingerprint: the server answers with other weights")

// agrees asks a server for the same log-probabilities.
func (f *Fingerprint) agrees(ctx context.Context, e Engine) error {
	found, err := e.Logprobs(ctx, f.Tokens)
	if err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	sum, count := 0.0, 0.0
	for i, want := range f.Logprobs {
		if !math.IsNaN(found[i]) {
			sum, count = sum+math.Abs(found[i]-want), count+1
		}
	}
	if off := sum / count; !(off <= f.Tolerance) {
		return fmt.Errorf("%w: the log-probabilities of the probe are off by %.4g on average (tolerance %.4g)",
			errOther, off, f.Tolerance)
	}
	return nil
}
