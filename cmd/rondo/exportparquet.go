package main

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Rows of a Parquet file.
const (
	rowsMessages = "messages"
	rowsSamples  = "samples"
)

// exportParquet writes one file, or one for each run into a directory.
func exportParquet(ctx context.Context, x *exporter, lines []trajectoryLine) (int, error) {
	info, err := os.Stat(x.out)
	if !strings.HasSuffix(x.out, string(filepath.Separator)) && (err != nil || !info.IsDir()) {
		return len(lines), x.parquet(ctx, x.out, lines)
	}
	byRun := map[string][]trajectoryLine{}
	for _, t := range lines {
		byRun[t.run] = append(byRun[t.run], t)
	}
	for _, run := range slices.Sorted(maps.Keys(byRun)) {
		if err := x.parquet(ctx, filepath.Join(x.out, run+".parquet"), byRun[run]); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}

func (x *exporter) parquet(ctx context.Context, path string, lines []trajectoryLine) error {
	return wholeFile(path, func(w io.Writer) error {
		if x.samples {
			return x.sampleRows(ctx, w, lines)
		}
		p, err := storage.NewMessageParquet(w)
		if err != nil {
			return err
		}
		for _, t := range lines {
			trajectory, err := x.trajectory(ctx, t)
			if err == nil {
				err = p.Add(trajectory)
			}
			if err != nil {
				return err
			}
		}
		return p.Close()
	})
}

func (x *exporter) sampleRows(ctx context.Context, w io.Writer, lines []trajectoryLine) error {
	p, err := storage.NewSampleParquet(w)
	if err != nil {
		return err
	}
	for _, t := range lines {
		trajectory, err := x.trajectory(ctx, t)
		if err == nil {
			err = p.Add(rewardedSamples(trajectory, t))
		}
		if err != nil {
			return err
		}
	}
	return p.Close()
}

// rewardedSamples are a rollout's training samples with its reward and the advantage that its group gave it, on every token that the
// model sampled. What a feed adds (normalisation over a batch, annotations, staleness) is no part of a rollout.
func rewardedSamples(trajectory *storage.Trajectory, t trajectoryLine) []storage.Sample {
	samples := trajectory.Samples()
	for i := range samples {
		s := &samples[i]
		s.Run, s.Group = t.run, events.GroupOf(t.Rollout)
		s.Reward, s.RewardComponents, s.Temperature = float32(*t.Reward), t.components, float32(t.temperature)
		s.Advantages = make([]float32, len(s.Tokens))
		for k, sampled := range s.LossMask {
			if sampled {
				s.Advantages[k] = float32(t.advantage)
			}
		}
	}
	return samples
}
