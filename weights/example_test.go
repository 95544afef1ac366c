package weights_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// A trainer publishes a version; an inference server fetches and verifies it.
func Example() {
	ctx := context.Background()
	path, err := os.MkdirTemp("", "rondo")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(path)
	store, err := dir.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	var model bytes.Buffer
	if err := safetensors.Write(&model, []safetensors.Data{safetensors.NewF32("bias", []int64{2},
		[]float32{0.5, -0.5})}, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := weights.Publish(ctx, store, "small", 1,
		weights.Content{Name: "model.safetensors", Data: model.Bytes()}); err != nil {
		log.Fatal(err)
	}

	version, _, err := weights.Current(ctx, store, "small")
	if err != nil {
		log.Fatal(err)
	}
	manifest, files, err := weights.Fetch(ctx, store, "small", version)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(manifest.Policy, manifest.Version, files[0].Name, bytes.Equal(files[0].Data, model.Bytes()))
	// Output:
	// small 1 model.safetensors true
}
