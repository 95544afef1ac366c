package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rivalRow is what bench/rivals has recorded of a row.
type rivalRow struct {
	Version string `json:"version"`
	Lengths []struct {
		Tokens int     `json:"tokens"`
		Rate   float64 `json:"mtok_s"`
		CPU    float64 `json:"cpu_s_per_mtok"`
	} `json:"lengths"`
	Kill struct {
		Came  int `json:"came"`
		Lost  int `json:"lost"`
		Twice int `json:"twice"`
	} `json:"kill"`
	Machine struct {
		CPU    string    `json:"cpu"`
		CPUs   int       `json:"cpus"`
		Memory float64   `json:"memory_gib"`
		Kernel string    `json:"kernel"`
		On     string    `json:"on"`
		Load   []float64 `json:"load"`
	} `json:"machine"`
}

// TestRivals: the table of docs/benchmarks.md is what was measured, of one run on one machine.
func TestRivals(t *testing.T) {
	var table, where strings.Builder
	table.WriteString("| | Mtok/s at 1,024 tokens | CPU s/Mtok | Mtok/s at 16,384 | CPU s/Mtok | came behind the kill | lost | came again |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	rows := []struct{ file, name string }{
		{"raw-synced", "the raw limit, synced"}, {"raw-unsynced", "the raw limit, not synced"},
		{"rondo-always", "Rondo, `--durability always`"}, {"rondo-100ms", "Rondo, `--durability 100ms`"},
		{"atropos", "Atropos %s, its API server"}, {"agent_lightning", "Agent Lightning %s, its server"},
		{"prime_rl-filesystem", "prime-rl %s, files"}, {"prime_rl-zmq", "prime-rl %s, ZeroMQ"},
		{"trl", "TRL %s, the queue of its AsyncGRPOTrainer"},
		{"transferqueue", "TransferQueue %s, SimpleStorage"},
		{"transferqueue-checkpoint", "TransferQueue %s, saved with the trainer's state"},
	}
	for _, row := range rows {
		data, err := os.ReadFile(filepath.Join(root, "bench/rivals/measured", row.file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var r rivalRow
		if err := json.Unmarshal(data, &r); err != nil || len(r.Lengths) != 2 || r.Lengths[0].Tokens != 1024 ||
			r.Lengths[1].Tokens != 16384 {
			t.Fatalf("%s: %v, %+v", row.file, err, r.Lengths)
		}
		name := strings.Replace(row.name, "%s", r.Version, 1)
		short, long, k := r.Lengths[0], r.Lengths[1], r.Kill
		fmt.Fprintf(&table, "| %s | %.2f | %.2f | %.2f | %.2f | %d | %d | %d |\n", name, short.Rate, short.CPU,
			long.Rate, long.CPU, k.Came, k.Lost, k.Twice)
		m := r.Machine
		here := fmt.Sprintf("\nMeasured on %s, on %d cores of %s with %.0f GiB, Linux %s; the load was %.1f to %.1f.\n",
			m.On, m.CPUs, m.CPU, m.Memory, m.Kernel, slices.Min(m.Load), slices.Max(m.Load))
		if where.Len() > 0 && where.String() != here {
			t.Fatalf("%s was measured elsewhere: %s", row.file, here)
		}
		where.Reset()
		where.WriteString(here)
	}
	generated(t, "docs/benchmarks.md", "rivals", table.String()+where.String())
}
