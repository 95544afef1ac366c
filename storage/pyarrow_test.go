package storage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// pyarrow runs the script in testdata with the Python of RONDO_PYTHON (python3). Without pyarrow
// the test is skipped, or fails with RONDO_REQUIRE_ALL=1.
func pyarrow(t *testing.T, args ...string) []byte {
	t.Helper()
	python := os.Getenv("RONDO_PYTHON")
	if python == "" {
		python = "python3"
	}
	if output, err := exec.Command(python, "-c", "import pyarrow").CombinedOutput(); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s has no pyarrow: %v\n%s", python, err, output)
		}
		t.Skipf("%s has no pyarrow (pip install pyarrow, or set RONDO_PYTHON): %v", python, err)
	}
	output, err := exec.Command(python, append([]string{"testdata/pyarrow_files.py"}, args...)...).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("pyarrow %v: %v\n%s", args, err, failed.Stderr)
		}
		t.Fatal(err)
	}
	return output
}

// TestParquetLine runs the line by which schemas/arrow.md makes Parquet of a run's files.
func TestParquetLine(t *testing.T) {
	document, err := os.ReadFile("../schemas/arrow.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(document), "\npython3 -c '")
	line, _, ended := strings.Cut(line, "'\n")
	if !ended {
		t.Fatal("schemas/arrow.md has no line that begins with python3 -c '")
	}
	second := makeTrajectory(2, 0) // rows without tokens: empty lists
	second.Rollout, second.TextOnly = "g000123-5", true
	dir := t.TempDir()
	var want []map[string]any
	for i, trajectory := range []*storage.Trajectory{makeTrajectory(5, 30), second} {
		// of several runs, each in its folder
		file := filepath.Join(dir, "trajectories", fmt.Sprint("run-", i), "g.arrow")
		encoded := encodeTrajectory(t, trajectory)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, encoded, 0o600)); err != nil {
			t.Fatal(err)
		}
		want = append(want, readWithPyarrow(t, encoded).Rows...)
	}
	pyarrow(t, "run", dir, line)
	var read pyarrowFile
	if err := json.Unmarshal(pyarrow(t, "parquet", filepath.Join(dir, "messages", "part-0.parquet")),
		&read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read.Rows, want) {
		t.Errorf("%d rows, want %d; the first is\n%v, want\n%v", len(read.Rows), len(want), read.Rows[0], want[0])
	}
}

// pyarrowFile is what the script prints of a file.
type pyarrowFile struct {
	Metadata, Types map[string]string
	Batches         int
	Rows            []map[string]any
}

func readWithPyarrow(t *testing.T, file []byte) pyarrowFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.arrow")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	var read pyarrowFile
	if err := json.Unmarshal(pyarrow(t, "read", path), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// floats turns what JSON made of a list column into float64s.
func floats(values any) []float64 {
	list, _ := values.([]any)
	numbers := make([]float64, len(list))
	for i, value := range list {
		numbers[i], _ = value.(float64)
	}
	return numbers
}

func TestPyarrowReadsTrajectories(t *testing.T) {
	trajectory := makeTrajectory(5, 30)
	read := readWithPyarrow(t, encodeTrajectory(t, trajectory))
	if read.Batches != 1 || len(read.Rows) != len(trajectory.Messages) {
		t.Fatalf("%d batches, %d rows; want 1, %d", read.Batches, len(read.Rows), len(trajectory.Messages))
	}
	for key, want := range map[string]string{"kind": "trajectory", "schema_version": "1", "run_id": "quickstart",
		"group_id": "g000123", "rollout_id": "g000123-4",
		"task": "shell-slugify", "stop_reason": "finished", "dispatch_version": "7", "text_only": "false",
		"messages": "12", "tokens": "360",
		"sampled_tokens": "150", "min_policy_version": "7", "max_policy_version": "9"} {
		t.Run(key, func(t *testing.T) {
			if read.Metadata[key] != want {
				t.Errorf("metadata %s = %q, want %q", key, read.Metadata[key], want)
			}
		})
	}
	for name, want := range map[string]string{"content": "string", "index": "int32", "token_ids": "list<item: int32>",
		"logprobs":  "list<item: float>",
		"loss_mask": "list<item: bool>", "policy_version": "int64", "started_at": "timestamp[ns, tz=UTC]",
		"duration": "duration[ns]"} {
		t.Run(name, func(t *testing.T) {
			if read.Types[name] != want {
				t.Errorf("type of %s is %q, want %q", name, read.Types[name], want)
			}
		})
	}
	for i, m := range trajectory.Messages {
		row := read.Rows[i]
		if row["role"] != m.Role || row["content"] != m.Content || row["tool_calls"] != m.ToolCalls ||
			row["workspace"] != m.Workspace ||
			row["rollout_id"] != trajectory.Rollout || row["policy_version"] != float64(m.PolicyVersion) ||
			row["duration"] != float64(m.Duration) {
			t.Errorf("row %d is %v, want %+v", i, row, m)
		}
		for k, logprob := range floats(row["logprobs"]) {
			if float32(logprob) != m.Logprobs[k] || floats(row["token_ids"])[k] != float64(m.TokenIDs[k]) {
				t.Fatalf("row %d, token %d differs", i, k)
			}
		}
	}
}

func TestPyarrowReadsBatches(t *testing.T) {
	batch := makeBatch(7, 40)
	read := readWithPyarrow(t, encodeBatch(t, batch))
	if read.Batches != 1 || len(read.Rows) != len(batch.Samples) || read.Metadata["step"] != "12" ||
		read.Metadata["tokens"] != "280" {
		t.Fatalf("%d batches, %d rows, metadata %v", read.Batches, len(read.Rows), read.Metadata)
	}
	if got := read.Types["policy_versions"]; !strings.Contains(got, "struct<start: int32") ||
		!strings.Contains(got, "version: int64") {
		t.Errorf("type of policy_versions is %s", got)
	}
	if got := read.Types["turns"]; !strings.Contains(got, "struct<start: int32") ||
		!strings.Contains(got, "turn: int32") {
		t.Errorf("type of turns is %s", got)
	}
	for key, want := range map[string]string{"schema_version": "1", "rank": "1", "ranks": "2", "micro_batches": "3",
		"batch_samples":        "1000000",
		"batch_sampled_tokens": "1000000000", "batch_rollouts": "100000"} {
		t.Run(key, func(t *testing.T) {
			if read.Metadata[key] != want {
				t.Errorf("metadata %s = %q, want %q", key, read.Metadata[key], want)
			}
		})
	}
	for i, s := range batch.Samples {
		row := read.Rows[i]
		var components map[string]float64
		text, _ := row["reward_components"].(string)
		if err := json.Unmarshal([]byte(text), &components); err != nil ||
			!reflect.DeepEqual(components, s.RewardComponents) {
			t.Errorf("row %d: reward components %q (%v), want %v", i, text, err, s.RewardComponents)
		}
		if row["rollout_id"] != s.Rollout || row["reward"] != float64(s.Reward) || row["truncated"] != s.Truncated ||
			len(floats(row["tokens"])) != len(s.Tokens) {
			t.Errorf("row %d is %v, want %+v", i, row, s)
		}
		for k, advantage := range floats(row["advantages"]) {
			if float32(advantage) != s.Advantages[k] || row["loss_mask"].([]any)[k] != s.LossMask[k] {
				t.Fatalf("row %d, token %d differs", i, k)
			}
		}
		last := row["policy_versions"].([]any)[1].(map[string]any)
		if last["start"] != float64(30) || last["length"] != float64(10) || last["version"] != float64(9) ||
			last["stale"] != (i%2 == 0) {
			t.Errorf("row %d: last policy version segment %v", i, last)
		}
		if span := row["turns"].([]any)[1].(map[string]any); span["start"] != float64(30) ||
			span["length"] != float64(10) || span["turn"] != float64(4) {
			t.Errorf("row %d: last turn %v", i, span)
		}
		var annotations []storage.Annotation
		text, _ = row["annotations"].(string)
		if err := json.Unmarshal([]byte(text), &annotations); err != nil ||
			!reflect.DeepEqual(annotations, s.Annotations) {
			t.Errorf("row %d: annotations %q (%v)", i, text, err)
		}
		if row["rollout_sampled"] != float64(40) || row["micro_batch"] != float64(s.MicroBatch) ||
			float32(row["temperature"].(float64)) != s.Temperature {
			t.Errorf("row %d is %v", i, row)
		}
	}
}

// TestTrajectoriesOfPyarrow: a foreign harness may write its trajectory file with another library.
func TestTrajectoriesOfPyarrow(t *testing.T) {
	want := &storage.Trajectory{Run: "r1", Group: "g1", Rollout: "g1-0", Task: "shell-slugify", StopReason: "finished",
		DispatchVersion: 4, Messages: []storage.Message{
			{Role: "user", Content: "Grüße", TokenIDs: []int32{1, 2}, Logprobs: []float32{0, 0},
				LossMask: []bool{false, false}, PolicyVersion: -1},
			{Index: 1, Role: "assistant", Content: "done", TokenIDs: []int32{3, 4, 5},
				Logprobs: []float32{-0.5, -1.5, -2.5}, LossMask: []bool{true, true, true},
				PolicyVersion: 4, FinishReason: "stop", StartedAt: time.Unix(1_700_000_000, 123_456_789).UTC(),
				Duration: 5 * time.Millisecond},
		}}
	for _, compression := range []string{"none", "zstd"} {
		path := filepath.Join(t.TempDir(), "file.arrow")
		pyarrow(t, "write", path, compression)
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := storage.DecodeTrajectory(file)
		if err != nil {
			t.Errorf("%s: %v", compression, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", compression, got, want)
		}
	}
	path := filepath.Join(t.TempDir(), "file.arrow")
	pyarrow(t, "write", path, "lz4")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storage.DecodeTrajectory(file); !errors.Is(err, storage.ErrCorrupt) ||
		!strings.Contains(err.Error(), "zstd") {
		t.Errorf("lz4: %v", err)
	}
}
