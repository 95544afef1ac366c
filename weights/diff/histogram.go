package diff

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/delta"
)

// Bucket counts the tensors of which at most a part of the elements changed, and more than
// the bucket before it says.
type Bucket struct {
	UpTo     float64 `json:"up_to"`
	Tensors  int     `json:"tensors"`
	Elements int64   `json:"elements"`
}

// histogram has a bucket for nothing and for each power of ten.
func histogram(tensors []Tensor) []Bucket {
	buckets := []Bucket{{UpTo: 0}, {UpTo: 1e-4}, {UpTo: 1e-3}, {UpTo: 1e-2}, {UpTo: 1e-1}, {UpTo: 1}}
	for _, t := range tensors {
		if t.What != "" {
			continue
		}
		b := &buckets[slices.IndexFunc(buckets, func(b Bucket) bool { return t.Fraction() <= b.UpTo })]
		b.Tensors, b.Elements = b.Tensors+1, b.Elements+t.Elements
	}
	return buckets
}

// Packed is what a delta takes of a layer.
type Packed struct {
	Name  string `json:"name"`  // the number in the tensors' names, "" for the rest
	Bytes int64  `json:"bytes"` // of the layer's tensors
	Delta int64  `json:"delta_bytes"`
}

// Fraction is the part of the bytes that the delta takes.
func (p Packed) Fraction() float64 { return float64(p.Delta) / float64(max(1, p.Bytes)) }

// PackedLayers reads the index of a delta in a store, and says what the delta takes of each layer.
func PackedLayers(ctx context.Context, s storage.Store, ref storage.Ref) (layers []Packed, err error) {
	object, err := storage.OpenBlob(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	d, err := delta.Open(object, ref.Size)
	if err != nil {
		return nil, err
	}
	sums := map[string]*Packed{}
	for _, t := range d.Tensors {
		layer := layerNumber(t.Name)
		if sums[layer] == nil {
			sums[layer] = &Packed{Name: layer}
		}
		sums[layer].Bytes, sums[layer].Delta = sums[layer].Bytes+t.Size, sums[layer].Delta+t.Bytes()
	}
	for _, name := range slices.SortedFunc(maps.Keys(sums), byNumber) {
		layers = append(layers, *sums[name])
	}
	return layers, nil
}
