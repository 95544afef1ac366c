package events_test

import (
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

func TestPackLogprobs(t *testing.T) {
	samples := [][]float32{{0, -0.5, -2}, {0}, {}, {0, -1e-30}}
	lengths := []int{3, 1, 0, 2}
	data := events.PackLogprobs(samples)
	if back, err := events.UnpackLogprobs(data, lengths); err != nil || !reflect.DeepEqual(back, samples) {
		t.Errorf("%v became %v: %v", samples, back, err)
	}
	change := func(token int, v float32) []byte {
		out := append([]byte(nil), data...)
		binary.LittleEndian.PutUint32(out[4*token:], math.Float32bits(v))
		return out
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"too short":     {data[:len(data)-4], "20 bytes of log-probabilities for 6 tokens, which take 24"},
		"too long":      {append(data[:len(data):len(data)], 0), "25 bytes"},
		"NaN":           {change(1, float32(math.NaN())), "sample 0: token 1"},
		"impossible":    {change(2, float32(math.Inf(-1))), "sample 0: token 2"},
		"none":          {change(1, -9999), "sample 0: token 1"},
		"above 0":       {change(5, 0.01), "sample 3: token 1"},
		"of no context": {change(3, -1), "token 0 of sample 1"},
		"shifted by one": {events.PackLogprobs([][]float32{{-0.5, -2, 0}, {0}, {}, {-1e-30, 0}}),
			"token 0 of sample 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := events.UnpackLogprobs(c.data, lengths); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
