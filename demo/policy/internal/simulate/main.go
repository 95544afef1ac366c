// Command simulate runs the built-in policy and its trainer on task folders with no log, no store and no sandbox: the loop of
// `rondo demo` in one process, for choosing hyperparameters. It runs the tasks' commands directly on this machine: use it on
// task packs that you trust.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sort"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/demo/policy"
)

type settings struct {
	steps, groups, size, turns, workers int
	shuffle, verbose, cycle             bool
	stale                               float64
	options                             policy.Options
}

func main() {
	s := settings{options: policy.DefaultOptions()}
	seeds := flag.Int("seeds", 3, "number of seeds")
	first := flag.Uint64("first", 1, "first seed")
	flag.IntVar(&s.steps, "steps", 12, "batches")
	flag.IntVar(&s.groups, "groups", 8, "groups a batch")
	flag.IntVar(&s.size, "size", 8, "rollouts a group")
	flag.IntVar(&s.turns, "turns", 14, "turns a rollout")
	flag.IntVar(&s.workers, "workers", 3, "rollouts at once")
	flag.BoolVar(&s.shuffle, "shuffle", false, "shuffle rewards within each group")
	flag.BoolVar(&s.cycle, "cycle", true, "visit every task equally often")
	flag.BoolVar(&s.verbose, "v", false, "print each step")
	flag.Float64Var(&s.stale, "stale", 0.7, "share of groups with a staleness of one")
	flag.Float64Var(&s.options.LearningRate, "learning-rate", s.options.LearningRate, "")
	flag.Float64Var(&s.options.ClipLow, "clip-low", s.options.ClipLow, "")
	flag.Float64Var(&s.options.ClipHigh, "clip-high", s.options.ClipHigh, "")
	flag.IntVar(&s.options.Epochs, "epochs", s.options.Epochs, "")
	flag.Float64Var(&s.options.UndoneCredit, "undone-credit", s.options.UndoneCredit, "")
	flag.Float64Var(&s.options.WeightDecay, "weight-decay", s.options.WeightDecay, "")
	profile := flag.String("profile", "", "write a CPU profile to this file")
	memory := flag.String("outcomes", "", "file that remembers outcomes of commands between runs")
	flag.Parse()
	if *memory != "" {
		if err := openOutcomes(*memory); err != nil {
			fmt.Fprintln(os.Stderr, "open outcomes:", err)
			os.Exit(1)
		}
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil || pprof.StartCPUProfile(f) != nil {
			fmt.Fprintln(os.Stderr, "cannot profile:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	tasks, err := load(flag.Args())
	if err != nil || len(tasks) == 0 {
		fmt.Fprintln(os.Stderr, "load tasks:", err, "- name folders that hold task folders")
		os.Exit(1)
	}
	var rises []float64
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		start := time.Now()
		rewards, perTask, err := train(tasks, s, seed)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		quarter := max(1, s.steps/4)
		low, high := mean(rewards[:quarter]), mean(rewards[len(rewards)-quarter:])
		rises = append(rises, high-low)
		fmt.Printf("seed %d: first %.3f last %.3f rise %.3f  [", seed, low, high, high-low)
		for _, r := range rewards {
			fmt.Printf(" %.2f", r)
		}
		fmt.Printf(" ] %.0fs, %d commands %.0fs\n", time.Since(start).Seconds(), executed.count, executed.time.Seconds())
		if s.verbose {
			for _, t := range tasks {
				fmt.Printf("   %-24s", t.name)
				for _, r := range perTask[t.name] {
					fmt.Printf(" %4s", r)
				}
				fmt.Println()
			}
		}
	}
	sort.Float64s(rises)
	fmt.Printf("median rise %.3f, min %.3f\n", rises[len(rises)/2], rises[0])
}

func load(dirs []string) ([]*task, error) {
	var tasks []*task
	for _, dir := range dirs {
		matches, err := filepath.Glob(filepath.Join(dir, "*", "instruction.md"))
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			t, err := loadTask(filepath.Dir(m))
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

type rollout struct {
	task    *task
	group   int
	sample  policy.TrainingSample
	reward  float64
	turns   int
	version int
}

func train(tasks []*task, s settings, seed uint64) (rewards []float64, perTask map[string][]string, err error) {
	random := rand.New(rand.NewPCG(seed, 7))
	trainer, err := policy.NewTrainer(s.options)
	if err != nil {
		return nil, nil, err
	}
	models := []*policy.Model{trainer.Model()}
	perTask = map[string][]string{}
	var order []int
	for step := range s.steps {
		rollouts := make([]*rollout, 0, s.groups*s.size)
		for group := range s.groups {
			if len(order) == 0 {
				order = random.Perm(len(tasks))
			}
			pick := order[0]
			if order = order[1:]; !s.cycle {
				pick = random.IntN(len(tasks))
			}
			version := len(models) - 1
			if random.Float64() < s.stale {
				version = max(0, version-1)
			}
			for range s.size {
				rollouts = append(rollouts, &rollout{task: tasks[pick], group: group, version: version})
			}
		}
		if err := play(rollouts, models, s, seed<<32|uint64(step)<<16); err != nil {
			return nil, nil, err
		}
		rewards = append(rewards, tally(tasks, rollouts, perTask))
		stats, err := trainer.Step(advantages(rollouts, s, random))
		if err != nil {
			return nil, nil, err
		}
		models = append(models, trainer.Model())
		if s.verbose {
			turns, tokens := 0, 0
			for _, r := range rollouts {
				turns += r.turns
				tokens += len(r.sample.Tokens)
			}
			fmt.Printf("  step %2d reward %.3f turns %.1f tokens %d ratio %.2f clip %.3f kl %.3f entropy %.2f norm %.1f unknown %d of %d\n", step+1, rewards[step],
				float64(turns)/float64(len(rollouts)), tokens/len(rollouts), stats.MeanRatio, stats.ClipFraction, stats.KL, stats.Entropy, stats.GradientNorm, stats.Unknown, stats.Decisions)
		}
	}
	return rewards, perTask, nil
}

func tally(tasks []*task, rollouts []*rollout, perTask map[string][]string) float64 {
	sum := map[string]float64{}
	count := map[string]int{}
	total := 0.0
	for _, r := range rollouts {
		sum[r.task.name] += r.reward
		count[r.task.name]++
		total += r.reward
	}
	for _, t := range tasks {
		text := "-"
		if count[t.name] > 0 {
			text = fmt.Sprintf("%.2f", sum[t.name]/float64(count[t.name]))
		}
		perTask[t.name] = append(perTask[t.name], text)
	}
	return total / float64(len(rollouts))
}

// advantages are the rewards minus their group's mean.
func advantages(rollouts []*rollout, s settings, random *rand.Rand) []policy.TrainingSample {
	samples := make([]policy.TrainingSample, len(rollouts))
	for start := 0; start < len(rollouts); start += s.size {
		group := rollouts[start : start+s.size]
		rewards := make([]float64, len(group))
		for i, r := range group {
			rewards[i] = r.reward
		}
		if s.shuffle {
			random.Shuffle(len(rewards), func(i, j int) { rewards[i], rewards[j] = rewards[j], rewards[i] })
		}
		baseline := mean(rewards)
		for i, r := range group {
			r.sample.Advantages = make([]float32, len(r.sample.Tokens))
			for k := range r.sample.Advantages {
				if r.sample.LossMask[k] {
					r.sample.Advantages[k] = float32(rewards[i] - baseline)
				}
			}
			samples[start+i] = r.sample
		}
	}
	return samples
}

func play(rollouts []*rollout, models []*policy.Model, s settings, seed uint64) error {
	var wait sync.WaitGroup
	next := make(chan int)
	errs := make(chan error, s.workers)
	for range s.workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range next {
				if err := rollouts[i].play(models[rollouts[i].version], s.turns, seed+uint64(i)); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		}()
	}
	for i := range rollouts {
		next <- i
	}
	close(next)
	wait.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

var toolNames = []string{"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd"}

func (r *rollout) play(model *policy.Model, turns int, seed uint64) error {
	w := r.task.workspace()
	messages := []policy.Message{{Role: "user", Content: r.task.instruction}}
	for r.turns = 1; r.turns <= turns; r.turns++ {
		answer, err := model.Generate(policy.Prompt{Tools: toolNames, Messages: messages, Temperature: 1, Seed: seed})
		if err != nil {
			return err
		}
		if err := r.record(answer); err != nil {
			return err
		}
		messages = append(messages, policy.Message{Role: "assistant", Content: answer.Content, ToolCalls: answer.ToolCalls})
		if len(answer.ToolCalls) == 0 {
			break
		}
		for _, call := range answer.ToolCalls {
			messages = append(messages, policy.Message{Role: "tool", ToolCallID: call.ID, Content: w.run(call)})
		}
	}
	r.reward = w.score()
	return nil
}

// record appends what a turn adds to the sample, and checks that the prompt extends what was sampled.
func (r *rollout) record(a *policy.Answer) error {
	s := &r.sample
	for i := range s.Tokens {
		if i >= len(a.PromptTokenIDs) || a.PromptTokenIDs[i] != s.Tokens[i] {
			return fmt.Errorf("%s: turn %d: the prompt does not extend the last one at token %d", r.task.name, r.turns, i)
		}
	}
	for _, token := range a.PromptTokenIDs[len(s.Tokens):] {
		s.Tokens, s.LossMask, s.SamplerLogprobs = append(s.Tokens, token), append(s.LossMask, false), append(s.SamplerLogprobs, 0)
	}
	for i, token := range a.TokenIDs {
		s.Tokens, s.LossMask, s.SamplerLogprobs = append(s.Tokens, token), append(s.LossMask, true), append(s.SamplerLogprobs, a.Logprobs[i])
	}
	return nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
