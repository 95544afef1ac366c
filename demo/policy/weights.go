package policy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

// Names of the tensors in the policy's safetensors files.
const (
	weightsTensor = "policy.weights"    // f32[Dimension]
	squaresTensor = "optimizer.squares" // f32[Dimension], in a trainer's state only
	stepTensor    = "optimizer.step"    // u8[8], little-endian, in a trainer's state only
)

// ReadModel reads a policy from a safetensors file.
func ReadModel(file []byte) (*Model, error) {
	values, err := readTensor(file, weightsTensor)
	if err != nil {
		return nil, err
	}
	return &Model{Weights: values}, nil
}

func readTensor(file []byte, name string) ([]float32, error) {
	r := bytes.NewReader(file)
	header, err := safetensors.Validate(r, int64(len(file)), 0)
	if err != nil {
		return nil, err
	}
	tensor, ok := header.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("there is no tensor %s", name)
	}
	values, err := tensor.ReadF32(r)
	if err != nil {
		return nil, err
	}
	if len(values) != Dimension {
		return nil, fmt.Errorf("tensor %s has %d values instead of %d", name, len(values), Dimension)
	}
	for _, v := range values {
		if v-v != 0 {
			return nil, fmt.Errorf("tensor %s has a value that is not finite", name)
		}
	}
	return values, nil
}

// Weights is the policy as trained so far, as a safetensors file.
func (t *Trainer) Weights() ([]byte, error) {
	var b bytes.Buffer
	err := safetensors.Write(&b, []safetensors.Data{safetensors.NewF32(weightsTensor, []int64{Dimension},
		t.model.Weights)}, map[string]string{"format": "rondo-policy"})
	return b.Bytes(), err
}

// Begin replaces the policy by one that Weights wrote. What was learnt of the steps is forgotten.
func (t *Trainer) Begin(file []byte) error {
	w, err := readTensor(file, weightsTensor)
	if err != nil {
		return err
	}
	t.model, t.squares, t.step = &Model{Weights: w}, make([]float32, Dimension), 0
	return nil
}

// Save is the whole state of the trainer: Load of it goes on bit for bit as
// if nothing had happened.
func (t *Trainer) Save() ([]byte, error) {
	var b bytes.Buffer
	step := binary.LittleEndian.AppendUint64(nil, uint64(t.step))
	err := safetensors.Write(&b, []safetensors.Data{
		safetensors.NewF32(weightsTensor, []int64{Dimension}, t.model.Weights),
		safetensors.NewF32(squaresTensor, []int64{Dimension}, t.squares),
		{Name: stepTensor, Dtype: "U8", Shape: []int64{8}, Bytes: step},
	}, nil)
	return b.Bytes(), err
}

// Load replaces the trainer's state by a saved one.
func (t *Trainer) Load(state []byte) error {
	w, err := readTensor(state, weightsTensor)
	if err != nil {
		return err
	}
	squares, err := readTensor(state, squaresTensor)
	if err != nil {
		return err
	}
	r := bytes.NewReader(state)
	header, err := safetensors.Validate(r, int64(len(state)), 0)
	if err != nil {
		return err
	}
	tensor, ok := header.Tensor(stepTensor)
	if !ok {
		return fmt.Errorf("there is no tensor %s", stepTensor)
	}
	step, err := tensor.Read(r)
	if err != nil {
		return err
	}
	if len(step) != 8 {
		return errors.New("the step is not 8 bytes")
	}
	t.model, t.squares, t.step = &Model{Weights: w}, squares, int64(binary.LittleEndian.Uint64(step))
	return nil
}
