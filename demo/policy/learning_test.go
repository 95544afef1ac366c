package policy

import (
	"encoding/json"
	flags "flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/demo/packs"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks"
)

var (
	runSeeds  = flags.Int("seeds", 1, "how many seeds TestTheSmallPackIsLearnt trains with")
	firstSeed = flags.Int("first-seed", 1, "the first of them")
	runSteps  = flags.Int("steps", 3, "training steps")
	groupSize = flags.Int("group", 8, "rollouts in a group")
	runTurns  = flags.Int("turns", 12, "turns of a rollout")
	staleness = flags.Int("staleness", 0, "versions that the sampled policy is behind the trained one")
	controls  = flags.Bool("controls", false, "train with a learning rate of 0 and with shuffled rewards, too")
)

// workshop runs the tests of the small pack in one sandbox, each text of a program once.
type workshop struct {
	t     *testing.T
	sb    *sandbox.Sandbox
	known map[string]ran
	runs  int // that were asked for
}

type ran struct {
	output string
	passed bool
	reward float64
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	sb, err := sandbox.New(t.Context(), sandbox.Spec{Name: "workshop", Workdir: "/app"})
	if err != nil {
		t.Skipf("no sandbox: %v", err)
	}
	t.Cleanup(func() { _ = sb.Close() })
	return &workshop{t: t, sb: sb, known: map[string]ran{}}
}

// open makes a toy of a task: its files are in memory, and its tests run in the sandbox.
func (w *workshop) open(task *tasks.Task) toy {
	files := w.read(task.Snapshot)
	hidden := w.read(task.Tests)["test.sh"]
	run := func(files map[string]string) ran { return w.run(task.Name, hidden, files) }
	return toy{
		instruction: task.Instruction, files: files,
		check: func(files map[string]string) (string, bool) {
			w.runs++
			r := run(files)
			return r.output, r.passed
		},
		score: func(files map[string]string) float64 { return run(files).reward },
	}
}

func (w *workshop) read(tree fs.FS) map[string]string {
	files := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var data []byte
			data, err = fs.ReadFile(tree, name)
			files[name] = string(data)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

func (w *workshop) run(name, hidden string, files map[string]string) ran {
	key := fmt.Sprint(name, files)
	if r, ok := w.known[key]; ok {
		return r
	}
	tree := fstest.MapFS{"hidden": {Data: []byte(hidden)}}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	packed, err := sandbox.Pack(tree)
	if err != nil {
		w.t.Fatal(err)
	}
	exec := func(script string) sandbox.Result {
		result, err := w.sb.Exec(w.t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}})
		if err != nil {
			w.t.Fatal(err)
		}
		return result
	}
	exec("rm -rf /app/* /logs; mkdir -p /logs/verifier")
	if err := w.sb.Unpack(w.t.Context(), "/app", packed); err != nil {
		w.t.Fatal(err)
	}
	tests := exec("timeout 2 sh test.sh 2>&1")
	var verdict struct{ Reward float64 }
	if err := json.Unmarshal(exec("sh hidden >/dev/null 2>&1; cat /logs/verifier/reward.json").Stdout,
		&verdict); err != nil {
		w.t.Fatal(err)
	}
	r := ran{string(tests.Stdout), tests.ExitCode == 0, verdict.Reward}
	w.known[key] = r
	return r
}

// learn trains on the pack as the demo does, each task once in a step, and answers the
// mean reward of each step.
func (w *workshop) learn(t *testing.T, o Options, seed uint64, shuffle bool) (curve []float64) {
	t.Helper()
	pack, err := tasks.LoadPack(packs.Small())
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := NewTrainer(o)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 2))
	var versions []*Model
	for step := range *runSteps {
		versions = append(versions, trainer.Model())
		sampled := versions[max(0, step-*staleness)]
		var samples []TrainingSample
		sum := 0.0
		for n, task := range pack {
			y := w.open(task)
			var rewards []float64
			var episodes []*episode
			for i := range *groupSize {
				e := y.play(t, sampled, seed<<32|uint64(step*1000+n*100+i), *runTurns)
				episodes, rewards, sum = append(episodes, e), append(rewards, e.reward), sum+e.reward
			}
			if shuffle {
				random.Shuffle(len(rewards), func(i, k int) { rewards[i], rewards[k] = rewards[k], rewards[i] })
			}
			for i, v := range advantage.MeanCentred(rewards) {
				samples = append(samples, episodes[i].advantage(v))
			}
		}
		curve = append(curve, sum/float64(len(samples)))
		if _, err := trainer.Step(samples); err != nil {
			t.Fatal(err)
		}
	}
	return curve
}

// rises are the sorted rises of the reward, first quarter of the steps to last, over the seeds.
func (w *workshop) rises(t *testing.T, o Options, shuffle bool) (all []float64) {
	t.Helper()
	for seed := *firstSeed; seed < *firstSeed+*runSeeds; seed++ {
		w.runs = 0
		curve := w.learn(t, o, uint64(seed), shuffle)
		before, after := books.Quarters(curve)
		all = append(all, after-before)
		t.Logf("seed %d: %.2f to %.2f, %d runs of tests: %.2f", seed, before, after, w.runs, curve)
	}
	slices.Sort(all)
	return all
}

// TestTheSmallPackIsLearnt trains as the demo does, without the plane around it: the median rise of
// the reward over the seeds has to be large enough. The controls, in which it has to stay flat,
// take as long again each and run only with -controls:
//
//	go test ./demo/policy -run SmallPack -v -seeds 9 -first-seed 1000 -steps 6 -controls -timeout 1h
//
// With -staleness 8 every batch is as old as a run file allows by default. It takes more steps, as
// the first nine batches are from before the first version.
func TestTheSmallPackIsLearnt(t *testing.T) {
	w := newWorkshop(t)
	still := DefaultOptions()
	still.LearningRate = 0
	for _, c := range []struct {
		name        string
		options     Options
		shuffle     bool
		least, most float64 // median rise
	}{
		{"learns", DefaultOptions(), false, 0.15, 1},
		{"learning rate 0", still, false, -0.15, 0.15},
		{"shuffled rewards", DefaultOptions(), true, -0.25, 0.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.least < 0 && !*controls {
				t.Skip("-controls runs it")
			}
			all := w.rises(t, c.options, c.shuffle)
			t.Logf("rises: %.2f", all)
			if median := all[len(all)/2]; median < c.least || median > c.most {
				t.Errorf("the reward rises by %.2f in the median, want %g to %g", median, c.least, c.most)
			}
		})
	}
}
