package weights

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// A checkpoint of synthetic bf16: weights of a normal distribution with deviation 0.02, rounded
// from 32-bit floats that the trainer keeps. A step moves each of these by the learning rate times
// a normal number of deviation 0.5: then 1.9 % of the elements change at 1e-6, between what is
// published of single steps (1 %) and of several (2 to 3 %).

const (
	deviation = 0.02
	step      = 0.5
	partSize  = 1 << 20 // elements that are made together
	// largest is the size of the largest tensor in bytes: an embedding among layers of 32 MiB.
	largest = 192 << 20
	layer   = 32 << 20
)

// tally counts what a step changed.
type tally struct {
	elements, changed int64
	differences       map[uint16]int64 // of the elements that changed
	xors              map[uint16]int64
}

// synthesise writes the checkpoint of a rate's step to path; rate 0 is the base.
func synthesise(ctx context.Context, path string, bytes int64, rate float64) (*tally, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	header, err := header(bytes)
	if err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Write(header); err != nil {
		f.Close()
		return nil, err
	}
	total, err := fill(ctx, f, int64(len(header)), bytes/2, rate)
	if err != nil {
		f.Close()
		return nil, err
	}
	return total, f.Close()
}

// header describes one large tensor and layers.
func header(bytes int64) ([]byte, error) {
	entries := map[string]any{}
	for at, i := int64(0), 0; at < bytes; i++ {
		size, name := min(int64(layer), bytes-at), fmt.Sprintf("model.layers.%04d.weight", i)
		if i == 0 {
			size, name = min(int64(largest), bytes), "model.embed_tokens.weight"
		}
		entries[name] = map[string]any{"dtype": "BF16", "shape": []int64{size / 2},
			"data_offsets": []int64{at, at + size}}
		at += size
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

func fill(ctx context.Context, f *os.File, offset, elements int64, rate float64) (*tally, error) {
	workers := runtime.GOMAXPROCS(0)
	counts := make([]*tally, workers)
	group, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() error {
			count := &tally{differences: map[uint16]int64{}, xors: map[uint16]int64{}}
			counts[w] = count
			data := make([]byte, 2*partSize)
			for part := int64(w); part*partSize < elements; part += int64(workers) {
				if err := ctx.Err(); err != nil {
					return err
				}
				n := min(partSize, elements-part*partSize)
				count.part(data[:2*n], uint64(part), rate)
				if _, err := f.WriteAt(data[:2*n], offset+2*part*partSize); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	total := counts[0]
	for _, count := range counts[1:] {
		total.elements, total.changed = total.elements+count.elements, total.changed+count.changed
		for value, n := range count.differences {
			total.differences[value] += n
		}
		for value, n := range count.xors {
			total.xors[value] += n
		}
	}
	return total, nil
}

// part makes the same weights for each rate, and the same directions of the step.
func (t *tally) part(data []byte, part uint64, rate float64) {
	weights, steps := rand.New(rand.NewPCG(part, 1)), rand.New(rand.NewPCG(part, 2))
	for i := 0; i < len(data); i += 2 {
		master := float32(weights.NormFloat64() * deviation)
		old := bf16(master)
		new := old
		if rate > 0 {
			new = bf16(master - float32(rate*step*steps.NormFloat64()))
		}
		binary.LittleEndian.PutUint16(data[i:], new)
		if new != old {
			t.changed++
			t.differences[new-old]++
			t.xors[new^old]++
		}
	}
	t.elements += int64(len(data) / 2)
}

// bf16 rounds to the nearest, and of two to the even one.
func bf16(value float32) uint16 {
	bits := math.Float32bits(value)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// entropy is the bytes that the positions of the changes take at least where each element changes
// with the same probability, and those that independent values of these counts take.
func (t *tally) entropy(values map[uint16]int64) float64 {
	p := float64(t.changed) / float64(t.elements)
	if t.changed == 0 || t.changed == t.elements {
		return 0
	}
	bits := -float64(t.elements) * (p*math.Log2(p) + (1-p)*math.Log2(1-p))
	for _, n := range values {
		bits -= float64(n) * math.Log2(float64(n)/float64(t.changed))
	}
	return bits / 8
}

// create writes a file by way of a buffer.
func create(path string, write func(*bufio.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	if err := write(b); err != nil {
		f.Close()
		return err
	}
	if err := b.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
