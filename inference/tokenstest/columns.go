package tokenstest

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

// Mixture is a model whose tokens go through experts: so many layers, each of which chooses TopK of
// Experts. Width is how many bytes vLLM writes the number of one in.
type Mixture struct{ Layers, TopK, Experts, Width int }

// Expert is the expert that a token of a sequence goes to, in a layer at a rank.
func (m Mixture) Expert(ids []int32, token, layer, rank int) int {
	return (int(ids[token])*7 + token*3 + layer*5 + rank + 1) % m.Experts
}

// rows are the experts of the tokens from one on, but for the last.
func (m Mixture) rows(ids []int32, from, width int) (data []byte) {
	for token := from; token < len(ids)-1; token++ {
		for layer := range m.Layers {
			for rank := range m.TopK {
				id := uint32(m.Expert(ids, token, layer, rank))
				data = append(data, binary.LittleEndian.AppendUint32(nil, id)[:width]...)
			}
		}
	}
	return data
}

// file is vLLM's way to write them: a .npy file in base64.
func (m Mixture) file(ids []int32, from int) string {
	kind := map[int]string{1: "|u1", 2: "<u2", 4: "<i4"}[m.Width]
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d, %d), }", kind,
		max(0, len(ids)-1-from), m.Layers, m.TopK)
	header += fmt.Sprintf("%*s\n", 63-(10+len(header))%64, "")
	data := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	return base64.StdEncoding.EncodeToString(append(append(data, header...), m.rows(ids, from, m.Width)...))
}

// Tops are the ids of the likeliest tokens in a sampled token's place, and their log-probabilities;
// the sampled one is the first.
func Tops(id int32, i, k int) (ids []int32, logprobs []float32) {
	for n := range k {
		ids, logprobs = append(ids, id+int32(n)), append(logprobs, -20-float32(n))
	}
	if k > 0 {
		logprobs[0] = Logprob(i)
	}
	return ids, logprobs
}

// Mask are the tokens that are left in a sampled token's place.
func Mask(id int32, i int) (ids []int32) {
	for n := range 1 + i%3 {
		ids = append(ids, id+int32(2*n))
	}
	return ids
}

func masks(ids []int32) (list [][]int32) {
	for i, id := range ids {
		list = append(list, Mask(id, i))
	}
	return list
}
