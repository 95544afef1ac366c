// Package tokencheck says which numbers are token ids and log-probabilities, wherever they come
// from: inference servers, harnesses and the Python client, whose rondo/tokens.py has the same
// rules. testdata/tokens.json holds both to them.
package tokencheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Servers and harnesses write -9999, -1e30, or minus infinity, for a
// log-probability that they do not have.
const (
	// leastSampled is near the logarithm of the least probability that float32 holds, 2^-149: no
	// sampler draws such a token. Trainers mark what has none with it.
	leastSampled = -100
	// leastScored is below what any model says of a token that it is given.
	leastScored = -1000
	// Rounding is how far above 0 the log-probability of a certain token may
	// come out in half precision.
	Rounding = 1e-3
)

// ErrNone means that a number stands for a log-probability that is not there.
var ErrNone = errors.New("which stands for no log-probability")

// None reports whether a number stands for a log-probability that is not there,
// whatever model it is of.
func None(l float32) bool { return !(l > leastScored) }

// Round sets log-probabilities that came out just above 0 to 0.
func Round(logprobs []float32) {
	for i, l := range logprobs {
		if l > 0 && l <= Rounding {
			logprobs[i] = 0
		}
	}
}

// Sampled refuses ids and log-probabilities of sampled tokens that are none; the error names the
// first one. Those that stand for "none" are refused, too: a turn without its log-probabilities
// says so, and is not trained on.
func Sampled(ids []int32, logprobs []float32) error {
	if len(ids) != len(logprobs) {
		return fmt.Errorf("%d token ids, %d log-probabilities", len(ids), len(logprobs))
	}
	if err := IDs(ids); err != nil {
		return err
	}
	return checkLogprobs(logprobs, leastSampled)
}

// Scored refuses what is no log-probability of tokens that a model was given.
func Scored(logprobs []float32) error { return checkLogprobs(logprobs, leastScored) }

func checkLogprobs(logprobs []float32, least float32) error {
	for i, l := range logprobs {
		switch {
		case l > least && l <= 0:
		case l > 0 && !math.IsInf(float64(l), 0):
			return fmt.Errorf("token %d has %g, and no logarithm of a probability is above 0", i, l)
		default: // also NaN
			return fmt.Errorf("token %d has %g, %w", i, l, ErrNone)
		}
	}
	return nil
}

// IDs looks for the one bad id only when there is one: it runs over every token
// that is written or read.
func IDs(ids []int32) error {
	all := int32(0)
	for _, id := range ids {
		all |= id
	}
	if all >= 0 {
		return nil
	}
	for i, id := range ids {
		if id < 0 {
			return fmt.Errorf("token %d has the id %d", i, id)
		}
	}
	return nil
}

// NoToken is the first number that no vocabulary has. Some servers put the hash of an image, which
// is larger, in the place of the tokens that stand for it.
const NoToken = 1_000_000

// Placeholders reports whether ids have such numbers: nobody knows which tokens the model saw.
func Placeholders(ids []int32) bool {
	return slices.ContainsFunc(ids, func(id int32) bool { return id >= NoToken })
}

// ReadIDs reads a JSON list of token ids, or null. What is no whole number of 32 bits is
// none, 5.0 and "5" included; the error names the first one. That ids below 0 are none,
// either, is for IDs to say.
func ReadIDs(data []byte) ([]int32, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("want a list of token ids, not %.40s", data)
	}
	if list == nil {
		return nil, nil
	}
	ids := make([]int32, len(list))
	for i, text := range list {
		text := string(bytes.TrimSpace(text))
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("token %d has the id %.40s: want a whole number from 0 to %d", i, text,
				math.MaxInt32)
		}
		ids[i] = int32(id)
	}
	return ids, nil
}
