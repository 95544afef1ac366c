package delta_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// stepped are bf16 weights before and after a step at a learning rate, as those
// of `rondo-bench weights`.
func stepped(rate float64, n int) (old, next safetensors.Data) {
	r := rand.New(rand.NewPCG(1, 1))
	round := func(v float32) uint16 { bits := math.Float32bits(v); return uint16((bits + 0x7fff + bits>>16&1) >> 16) }
	old = safetensors.Data{Name: "w", Dtype: safetensors.BF16, Shape: []int64{int64(n)}, Bytes: make([]byte, 2*n)}
	next = old
	next.Bytes = make([]byte, 2*n)
	for i := range n {
		master := float32(r.NormFloat64() * 0.02)
		binary.LittleEndian.PutUint16(old.Bytes[2*i:], round(master))
		binary.LittleEndian.PutUint16(next.Bytes[2*i:], round(master-float32(rate*0.5*r.NormFloat64())))
	}
	return old, next
}

// BenchmarkEncode encodes deltas in memory, on all cores.
func BenchmarkEncode(b *testing.B) {
	for _, rate := range []float64{1e-6, 1e-5} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			old, next := stepped(rate, 16<<20)
			from, to := checkpoint(b, model{"m.safetensors": {old}}.files(b)),
				checkpoint(b, model{"m.safetensors": {next}}.files(b))
			b.SetBytes(int64(len(old.Bytes)))
			for b.Loop() {
				if err := delta.Encode(b.Context(), io.Discard, from, to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReader applies deltas in memory, on one core.
func BenchmarkReader(b *testing.B) {
	for _, rate := range []float64{1e-6, 1e-5} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			old, next := stepped(rate, 16<<20)
			base := model{"m.safetensors": {old}}.files(b)
			packed := encode(b, base, model{"m.safetensors": {next}}.files(b))
			d, from := open(b, packed), checkpoint(b, base)
			b.SetBytes(int64(len(old.Bytes)))
			for b.Loop() {
				r, err := d.Reader(b.Context(), from, "m.safetensors")
				if err == nil {
					_, err = io.Copy(io.Discard, r)
				}
				if err == nil {
					err = r.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
