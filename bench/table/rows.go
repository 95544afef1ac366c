package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/bench/agent"
	"github.com/rondo-rl/rondo/bench/feed"
	"github.com/rondo-rl/rondo/bench/index"
	"github.com/rondo-rl/rondo/bench/replay"
	"github.com/rondo-rl/rondo/bench/rollouts"
	"github.com/rondo-rl/rondo/bench/sandbox"
	"github.com/rondo-rl/rondo/bench/stage"
	"github.com/rondo-rl/rondo/bench/utilisation"
	"github.com/rondo-rl/rondo/bench/weights"
)

// measurement is one benchmark and what the table takes of it.
type measurement struct {
	name        string
	args, quick []string
	rows        func([]byte) ([]Row, error)
}

var measurements = []measurement{
	{"stage", nil, []string{"--events", "4000", "--pairs", "3"}, rowsOf(stageRows)},
	{"pipeline", nil, []string{"--rollouts", "200"}, rowsOf(pipelineRows)},
	{"agent", nil, []string{"--rollouts", "8", "--pairs", "1"}, rowsOf(agentRows)},
	{"feed", []string{"--no-memory"}, []string{"--no-memory", "--lengths", "1024", "--tokens", "1048576"}, rowsOf(feedRows)},
	{"replay", nil, []string{"--rollouts", "384", "--pairs", "3"}, rowsOf(replayRows)},
	{"weights", []string{"--rates", "0.000001", "--peer-mib", "0"}, []string{"--rates", "0.000001", "--peer-mib", "0", "--mib", "64"}, rowsOf(weightsRows)},
	{"sandbox", []string{"--held", "0"}, []string{"--held", "0", "--pairs", "10"}, rowsOf(sandboxRows)},
	{"index", []string{"--times", "1", "--chunks", "10000"}, []string{"--times", "1", "--chunks", "10000", "--questions", "20", "--queries", "10"}, rowsOf(indexRows)},
	{"utilisation", []string{"--workload", "agents"}, []string{"--workload", "agents", "--steps", "8"}, rowsOf(utilisationRows)},
}

// rowsOf reads the JSON of a benchmark.
func rowsOf[T any](rows func(T) ([]Row, error)) func([]byte) ([]Row, error) {
	return func(answer []byte) ([]Row, error) {
		var r T
		if err := json.Unmarshal(answer, &r); err != nil {
			return nil, fmt.Errorf("read its JSON: %w", err)
		}
		return rows(r)
	}
}

// faster and sooner are rows of which more, or less, is better; the latter are times in milliseconds.
func faster(what, unit string, rondo float64, beside string, other float64) Row {
	return Row{What: what, Unit: unit, Rondo: rondo, Beside: beside, Other: other, Ratio: ratio(rondo, other)}
}

func sooner(what string, rondo float64, beside string, other float64) Row {
	return Row{What: what, Unit: "ms", Rondo: rondo, Beside: beside, Other: other, Ratio: ratio(other, rondo)}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func stageRows(r stage.Result) (rows []Row, err error) {
	for _, s := range r.Settings {
		what := "one stage, log synced " + s.Durability
		row := faster(what, "events/s", s.Runtime.EventsPerSecond, "workers on nats.go", s.Raw.EventsPerSecond)
		row.Ratio = s.Ratio
		rows = append(rows, row)
		row = faster(what, "events/s", s.Runtime.EventsPerSecond, "nats.go that waits for nothing", s.Ceiling.EventsPerSecond)
		row.Ratio = s.ToCeiling
		rows = append(rows, row)
	}
	return rows, nil
}

func pipelineRows(r rollouts.Result) ([]Row, error) {
	return []Row{
		sooner("all stages of a turn at half load, p50", r.AddedP50+r.Raw.P50, "nats.go: event to event", r.Raw.P50),
		sooner("all stages of a turn at half load, p99", r.AddedP99+r.Raw.P99, "nats.go: event to event", r.Raw.P99),
	}, nil
}

func agentRows(r agent.Result) ([]Row, error) {
	return []Row{
		sooner("an agent's turn at half load beside the model, p50", r.Whole.Gateway.P50, "a bare proxy", r.Whole.Proxy.P50),
		sooner("an agent's turn at half load beside the model, p99", r.Whole.Gateway.P99, "a bare proxy", r.Whole.Proxy.P99),
		sooner("first words of a stream at half load beside the model, p50", r.First.Gateway.P50, "a bare proxy", r.First.Proxy.P50),
		sooner("first words of a stream at half load beside the model, p99", r.First.Gateway.P99, "a bare proxy", r.First.Proxy.P99),
	}, nil
}

func feedRows(r feed.Result) (rows []Row, err error) {
	for _, t := range r.Turns {
		of := fmt.Sprintf("trajectories of %d tokens, log synced %s", t.Tokens, t.Durability)
		rows = append(rows,
			faster("push of "+of, "Mtok/s", t.Push, "Arrow files, each synced", t.RawWrite),
			faster("pull of "+of, "Mtok/s", t.Pull, "Arrow files, read", t.RawRead),
			faster("push of "+of, "Mtok/s", t.Push, "a JetStream publish each, no files", t.RawAppend))
	}
	return rows, nil
}

func replayRows(r replay.Result) ([]Row, error) {
	stream := faster("a run folded from its stream", "events/s", r.Replay, "a bare consumer", r.Raw)
	archive := faster("a run folded from its archive", "events/s", r.Archive, "a bare Arrow reader", r.ArchiveRaw)
	stream.Ratio, archive.Ratio = r.ReplayRatio, r.ArchiveRatio
	return []Row{stream, archive}, nil
}

func weightsRows(r weights.Result) (rows []Row, err error) {
	for _, at := range r.Rates {
		encode := faster(fmt.Sprintf("delta at a learning rate of %g, encoded", at.Rate), "GB/s", at.EncodeGBs, "cmp", at.CmpGBs)
		apply := faster(fmt.Sprintf("delta at a learning rate of %g, applied", at.Rate), "GB/s", at.ApplyGBs, "cp", at.CpGBs)
		encode.Ratio, apply.Ratio = at.Encode, at.Apply
		rows = append(rows, encode, apply)
	}
	return rows, nil
}

func sandboxRows(r sandbox.Result) ([]Row, error) {
	rows := []Row{sooner("true in a held sandbox", r.Exec, "fork and exec", r.Bare)}
	if r.NoBubblewrap != "" {
		return rows, errors.New("bubblewrap: " + r.NoBubblewrap)
	}
	return append(rows, sooner("a sandbox made, used and destroyed", r.Create, "bubblewrap", r.Bubblewrap)), nil
}

func indexRows(r index.Result) (rows []Row, err error) {
	for _, t := range r.Trees {
		rows = append(rows, sooner("a question to the index of Go's library", t.QueryMS, t.Grep, t.GrepMS))
	}
	return rows, nil
}

func utilisationRows(r utilisation.Result) ([]Row, error) {
	return []Row{
		faster("a server kept busy (simulated)", "of the time", r.Rondo, "a barrier", r.Barrier),
		faster("a server kept busy (simulated)", "of the time", r.Rondo, "a queue of batches", r.Queue),
	}, nil
}

// rival is a row of bench/rivals.
type rival struct {
	Version string `json:"version"`
	NotRun  string `json:"not_run"`
	Lengths []struct {
		Tokens int     `json:"tokens"`
		Mtok   float64 `json:"mtok_s"`
	} `json:"lengths"`
	Kill struct {
		Lost float64 `json:"lost"`
	} `json:"kill"`
}

// rivalRows puts Rondo beside each rival: the tokens that reach the trainer, and the rollouts that a kill loses. What was not run goes to missing.
func rivalRows(missing map[string]string) func([]byte) ([]Row, error) {
	return rowsOf(func(all map[string]rival) (rows []Row, err error) {
		ours, ok := all["rondo-always"]
		if !ok || ours.NotRun != "" {
			return nil, fmt.Errorf("Rondo itself did not run: %s", ours.NotRun) //nolint:staticcheck // a name
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			other := all[name]
			if name == "rondo-always" {
				continue
			}
			if other.NotRun != "" {
				missing[rivals+": "+name] = other.NotRun
				continue
			}
			for i, l := range ours.Lengths {
				if i < len(other.Lengths) {
					rows = append(rows, faster(fmt.Sprintf("rollouts of %d tokens to the trainer, log synced always", l.Tokens), "Mtok/s", l.Mtok, name, other.Lengths[i].Mtok))
				}
			}
			rows = append(rows, Row{What: "rollouts lost at a kill", Rondo: ours.Kill.Lost, Beside: name, Other: other.Kill.Lost})
		}
		return rows, nil
	})
}
