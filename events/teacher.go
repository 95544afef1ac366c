package events

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rondo-rl/rondo/storage"
)

// TeacherScored says how likely a teacher, or a reference model, finds the tokens of a scored rollout. The ordinal is the teacher's name, so each states it
// once.
type TeacherScored struct {
	Teacher string `json:"teacher" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	// Trajectory is the SHA-256 of the file whose tokens these are.
	Trajectory string `json:"trajectory" jsonschema:"pattern=^[0-9a-f]{64}$"`
	// Tokens are those of the trajectory's samples together, and Logprobs holds one value for each, see PackLogprobs; absent where Failed says why there are none.
	Tokens   int          `json:"tokens" jsonschema:"minimum=0"`
	Logprobs *storage.Ref `json:"logprobs,omitempty"`
	Failed   string       `json:"failed,omitempty" jsonschema:"maxLength=1000"`
	// Model is the name that the server answered to, and Version the version of its weights, as far as anybody says one.
	Model   string `json:"model,omitempty" jsonschema:"maxLength=256"`
	Version string `json:"version,omitempty" jsonschema:"maxLength=128"`
}

// bytesOfLogprob is the size of one log-probability of PackLogprobs.
const bytesOfLogprob = 4

// PackLogprobs lays out the log-probabilities of all tokens of a trajectory's samples, sample after sample, as little-endian float32. The first token of a
// sample has nothing before it, and 0.
func PackLogprobs(samples [][]float32) []byte {
	var data []byte
	for _, values := range samples {
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return data
}

// UnpackLogprobs reads what PackLogprobs made of samples of these lengths. Its error says what is no log-probability: the data may come from outside.
func UnpackLogprobs(data []byte, lengths []int) ([][]float32, error) {
	tokens := 0
	for _, n := range lengths {
		tokens += n
	}
	if len(data) != bytesOfLogprob*tokens {
		return nil, fmt.Errorf("%d bytes of log-probabilities for %d tokens, which take %d", len(data), tokens, bytesOfLogprob*tokens)
	}
	samples := make([][]float32, len(lengths))
	for i, n := range lengths {
		samples[i] = make([]float32, n)
		for k := range samples[i] {
			v := math.Float32frombits(binary.LittleEndian.Uint32(data))
			if !(v <= 0) || v-v != 0 || k == 0 && v != 0 {
				return nil, fmt.Errorf("token %d of sample %d has the log-probability %g: want a finite number of at most 0, and 0 for the first token", k, i, v)
			}
			samples[i][k], data = v, data[bytesOfLogprob:]
		}
	}
	return samples, nil
}
