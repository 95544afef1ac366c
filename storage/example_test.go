package storage_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// A trajectory goes to the store as a file, and comes back as training samples.
func Example() {
	ctx := context.Background()
	path, err := os.MkdirTemp("", "rondo")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(path)
	s, err := dir.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	file, err := storage.EncodeTrajectory(&storage.Trajectory{
		Run: "demo", Group: "g000001", Rollout: "g000001-0", Task: "shell-slugify",
		StopReason: "finished", DispatchVersion: 3,
		Messages: []storage.Message{
			{Role: "user", Content: "Fix it.", TokenIDs: []int32{11, 12}, Logprobs: []float32{0, 0},
				LossMask: []bool{false, false}, PolicyVersion: -1},
			{Index: 1, Role: "assistant", Content: "Done.", TokenIDs: []int32{21, 22}, Logprobs: []float32{-0.5, -0.25},
				LossMask: []bool{true, true}, PolicyVersion: 3},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ref, err := storage.PutNamed(ctx, s, "runs/demo/trajectories/g000001-0", ".arrow", file)
	if err != nil {
		log.Fatal(err)
	}

	stored, err := storage.GetBlob(ctx, s, ref)
	if err != nil {
		log.Fatal(err)
	}
	trajectory, err := storage.DecodeTrajectory(stored)
	if err != nil {
		log.Fatal(err)
	}
	for _, sample := range trajectory.Samples() {
		fmt.Println(sample.Rollout, sample.Tokens, sample.LossMask, sample.PolicyVersions)
	}
	// Output: g000001-0 [11 12 21 22] [false false true true] [{2 2 3 false}]
}
