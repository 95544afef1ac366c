package audit

import (
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// TestPlantedFaults plants each fault that the checker knows and demands that it is found.
func TestPlantedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		rule  string
		plant func(p *tape)
	}{
		"lost link": {RuleChain, func(p *tape) {
			i := p.find(events.ToolsCompletedType, "g000001-0")
			p.log = slices.Delete(p.log, i, i+1) // the links behind it still point at it
		}},
		"forked chain": {RuleChain, func(p *tape) {
			i := p.find(events.RolloutFinishedType, "g000001-0")
			fork := p.log[i]
			fork.ID, fork.Seq = fork.ID+"x", uint64(len(p.log)+1)
			p.log = append(p.log, fork)
		}},
		"event twice": {RuleDuplicate, func(p *tape) {
			p.log = append(p.log, p.log[p.find(events.BatchConsumedType, "f")])
			p.relink()
		}},
		"wrong identity": {RuleIdentity, func(p *tape) {
			p.log[p.find(events.RolloutScoredType, "g000001-1")].ID = "r/rollout.g000009-1/scored/0"
		}},
		"turn lost": {RuleTurns, func(p *tape) { p.remove(events.TurnSampledType, "g000001-0") }},
		"turns miscounted": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutFinishedType, "g000001-0", func(d *events.RolloutFinished) { d.Turns++ })
		}},
		"recorded token of a turn changed": {RuleTurns, func(p *tape) {
			edit(p, events.TurnSampledType, "g000009-0", func(d *events.TurnSampled) { d.TokenIDs[1]++ })
		}},
		"recorded log-probability of a turn changed": {RuleTurns, func(p *tape) {
			edit(p, events.TurnSampledType, "g000009-0", func(d *events.TurnSampled) { d.Logprobs[0]-- })
		}},
		"turn shorter than its pieces": {RuleTurns, func(p *tape) {
			edit(p, events.TurnSampledType, "g000009-0",
				func(d *events.TurnSampled) { d.TokenIDs, d.Logprobs = d.TokenIDs[:1], d.Logprobs[:1] })
		}},
		"piece of a turn lost": {RuleTurns, func(p *tape) {
			i := p.find(events.PieceSampledType, "g000009-0") + 1
			p.log = slices.Delete(p.log, i, i+1)
			p.relink()
		}},
		"answer begun anew": {RuleTurns, func(p *tape) {
			i := p.find(events.PieceSampledType, "g000009-0") + 1
			again := p.log[i]
			again.ID += "x"
			p.log = slices.Insert(p.log, i+1, again)
			p.relink()
		}},
		"piece behind its turn": {RuleTurns, func(p *tape) {
			i := p.find(events.TurnSampledType, "g000009-0")
			p.log[i], p.log[i-1] = p.log[i-1], p.log[i]
			p.relink()
		}},
		"answer lost": {RuleTurns, func(p *tape) { p.remove(events.ToolsCompletedType, "g000001-0") }},
		"start lost":  {RuleTurns, func(p *tape) { p.remove(events.RolloutStartedType, "g000001-0") }},
		"call unanswered": {RuleTurns, func(p *tape) {
			edit(p, events.ToolsCompletedType, "g000001-0", func(d *events.ToolsCompleted) { d.Results = nil })
		}},
		"image of a turn left out": {RuleBatch, func(p *tape) {
			edit(p, events.TurnSampledType, "g000001-1", func(d *events.TurnSampled) {
				d.Prompt = []events.PromptMessage{{Role: "user", Images: []storage.Image{{MediaType: "image/png"}}}}
			})
		}},
		"turn behind none": {RuleBatch, func(p *tape) {
			edit(p, events.TurnSampledType, "g000001-1", func(d *events.TurnSampled) {
				d.After, d.Prompt = new(7), []events.PromptMessage{{Role: "user",
					Images: []storage.Image{{MediaType: "image/png"}}}}
			})
		}},
		"masked, and trained on": {RuleBatch, func(p *tape) {
			rule := runfile.ConversationRule{Name: "all", Tree: runfile.TreeMain, Train: new(false)}
			edit(p, events.RunOpenedType,
				"r", func(d *events.RunOpened) { d.Config.Conversations = []runfile.ConversationRule{rule} })
			edit(p, events.TurnSampledType, "g000001-0", func(d *events.TurnSampled) {
				d.Conversation = &events.Conversation{Tree: rule.Tree, Rule: rule.Name, Masked: true}
			})
		}},
		"two outcomes": {RuleOutcome, func(p *tape) {
			p.state(events.RolloutFailedType, "g000001-0",
				"0", events.RolloutFailed{Stage: events.StageScorer, Class: events.ClassDeadline})
		}},
		"reward changed": {RuleGroup, func(p *tape) {
			edit(p, events.RolloutScoredType, "g000001-1", func(d *events.RolloutScored) { d.Reward = 0.25 })
		}},
		"member missing": {RuleGroup, func(p *tape) {
			edit(p, events.GroupCompletedType, "g000001", func(d *events.GroupCompleted) { d.Members = d.Members[:1] })
		}},
		"completed early": {RuleGroup, func(p *tape) { p.remove(events.RolloutScoredType, "g000001-1") }},
		"teacher's values changed": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[0].TeacherLogprobs[0][1] = -9 })
		}},
		"teacher left out": {RuleBatch, func(p *tape) {
			for rank := range 2 {
				p.file(rank, func(b *storage.Batch) {
					b.Teachers, b.Hinted = nil, nil
					for i := range b.Samples {
						b.Samples[i].TeacherLogprobs = nil
					}
				})
			}
		}},
		"teacher has said nothing": {RuleMembers, func(p *tape) { p.remove(events.TeacherScoredType, "g000001-0") }},
		"teacher has failed": {RuleMembers, func(p *tape) {
			edit(p, events.TeacherScoredType, "g000001-0",
				func(d *events.TeacherScored) { d.Logprobs, d.Failed = nil, "away" })
		}},
		"teacher speaks twice": {RuleTurns, func(p *tape) {
			said, _ := events.Data[events.TeacherScored](p.log[p.find(events.TeacherScoredType, "g000001-0")])
			p.state(events.TeacherScoredType, "g000001-0", "again", said)
		}},
		"teacher of other tokens": {RuleTurns, func(p *tape) {
			edit(p, events.TeacherScoredType, "g000001-0", func(d *events.TeacherScored) { d.Tokens-- })
		}},
		"hint left out": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) {
				b.Samples[0].Hints = nil
				b.Samples[0].TeacherLogprobs[1][2] = float32(math.NaN())
			})
		}},
		"hint of another text": {RuleBatch,
			func(p *tape) { p.file(0, func(b *storage.Batch) { b.Samples[0].Hints[0].Text = "Look last." }) }},
		"hint inserted elsewhere": {RuleBatch,
			func(p *tape) { p.file(0, func(b *storage.Batch) { b.Samples[0].Hints[0].At-- }) }},
		"hinted teacher's values changed": {RuleBatch,
			func(p *tape) { p.file(0, func(b *storage.Batch) { b.Samples[1].TeacherLogprobs[1][2] = -9 }) }},
		"hinted teacher's values of the span before": {RuleBatch,
			func(p *tape) { p.file(0, func(b *storage.Batch) { b.Samples[1].TeacherLogprobs[1][2] = -0.25 }) }},
		"hinted teacher left out": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[0].TeacherLogprobs[1][2] = float32(math.NaN()) })
		}},
		"hinter speaks twice": {RuleTurns, func(p *tape) {
			said, _ := events.Data[events.RolloutHinted](p.log[p.find(events.RolloutHintedType, "g000001-0")])
			p.state(events.RolloutHintedType, "g000001-0", "again", said)
		}},
		"hints of nobody": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutHintedType, "g000001-0", func(d *events.RolloutHinted) { d.By = "somebody" })
		}},
		"hints about another trajectory": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutHintedType, "g000001-0", func(d *events.RolloutHinted) { d.Trajectory = "0" })
		}},
		"hints about tokens that were not sampled": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutHintedType, "g000001-0", func(d *events.RolloutHinted) { d.Hints[0].Start = 0 })
		}},
		"hints lost": {RuleBatch, func(p *tape) { p.remove(events.RolloutHintedType, "g000001-0") }},
		"hinted teacher of other tokens": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutHintedType, "g000001-0", func(d *events.RolloutHinted) { d.Hints = d.Hints[:1] })
		}},
		"step skipped": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Step = 2 })
		}},
		"trained twice": {RuleBatch, func(p *tape) {
			ready, _ := events.Data[events.BatchReady](p.log[p.find(events.BatchReadyType, "f")])
			ready.Step = 2
			p.state(events.BatchReadyType, "f", "2", ready)
		}},
		"other order than the file": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { slices.Reverse(d.Rollouts) })
		}},
		"advantage changed": {RuleAdvantage, func(p *tape) {
			edit(p, events.GroupCompletedType, "g000001", func(d *events.GroupCompleted) { d.Members[0].Advantage = 2 })
		}},
		"not normalised over the batch": {RuleAdvantage, func(p *tape) {
			p.file(0, func(b *storage.Batch) {
				for _, s := range b.Samples {
					for k, sampled := range s.LossMask {
						if sampled {
							s.Advantages[k] = s.Reward
						}
					}
				}
			})
		}},
		"reward of a span left out": {RuleAdvantage, func(p *tape) { // of the second sample of g000001-0
			p.file(0, func(b *storage.Batch) { b.Samples[1].Advantages[2] = b.Samples[1].Advantages[1] })
		}},
		"annotation lost": {RuleAdvantage, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[1].Annotations = nil })
		}},
		"annotation of other tokens": {RuleAdvantage, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[1].Annotations[0].Start-- })
		}},
		"annotation that counts said not to": {RuleAdvantage, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[1].Annotations[0].Note = "no" })
		}},
		"annotation changed": {RuleAdvantage, func(p *tape) {
			edit(p, events.RolloutAnnotatedType, "g000001-0",
				func(d *events.RolloutAnnotated) { d.Text = "something else" })
		}},
		"masked, but not said": {RuleMembers, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { delete(d.Masked, "g000002-0") })
		}},
		"masked for another reason": {RuleMembers, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Masked["g000002-0"] = "max_tokens" })
		}},
		"masked and trained on": {RuleMembers, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Masked["g000001-0"] = "truncated" })
		}},
		"of an unknown version, but trained on": {RuleMembers, func(p *tape) {
			edit(p, events.RunOpenedType, "r", func(d *events.RunOpened) { d.Config.Staleness.RequireVersions = true })
			edit(p, events.RolloutFinishedType, "g000001-0", func(d *events.RolloutFinished) { d.UnknownVersions = 1 })
		}},
		"tokens too old for a feed that requires versions": {RuleMembers, func(p *tape) {
			edit(p, events.RunOpenedType, "r", func(d *events.RunOpened) { d.Config.Staleness.RequireVersions = true })
			// two before the dispatch
			edit(p, events.RolloutFinishedType, "g000001-0", func(d *events.RolloutFinished) { d.MinVersion = -2 })
		}},
		"somebody else masked": {RuleMembers, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Masked["g000009-0"] = "truncated" })
		}},
		"invalidated, but trained on": {RuleMembers, func(p *tape) {
			invalidated := p.log[p.find(events.RolloutInvalidatedType, "g000002-2")]
			invalidated.Entity, invalidated.ID = "g000001-0",
				events.ID("r", events.RolloutInvalidatedType, "g000001-0", "0")
			p.log[p.find(events.RolloutInvalidatedType, "g000002-2")] = invalidated
			p.relink()
		}},
		"too old for a feed that drops": {RuleMembers, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Staleness = 2 })
		}},
		"too old when its batch is consumed": {RuleStaleness, func(p *tape) {
			p.remove(events.BatchConsumedType, "f")
			p.published("r", 1, 1)
			p.published("r", 2, 2)
			p.state(events.BatchConsumedType, "f", "1", events.BatchConsumed{Step: 1})
		}},
		"left out of a batch that does not hold it": {RuleBatch, func(p *tape) {
			edit(p, events.BatchConsumedType, "f", func(d *events.BatchConsumed) { d.Stale = []string{"g000099-0"} })
		}},
		"a file too few": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Files = d.Files[:1] })
		}},
		"files of other ranks": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { slices.Reverse(d.Files) })
		}},
		"wrong normalisers": {RuleBatch, func(p *tape) {
			p.file(1, func(b *storage.Batch) { b.Whole.SampledTokens++ })
		}},
		"group on two ranks": {RuleBatch, func(p *tape) {
			var moved storage.Sample
			p.file(0, func(b *storage.Batch) { moved = b.Samples[0] })
			p.file(1, func(b *storage.Batch) { b.Samples = append(b.Samples, moved) })
		}},
		"other micro-batches": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.MicroBatches++ })
		}},
		"tokens changed": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[0].Tokens[0]++ })
		}},
		"tokens flagged that are not stale": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[0].PolicyVersions[0].Stale = true })
		}},
		"sample lost": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples = b.Samples[1:] })
		}},
		"another reward": {RuleBatch, func(p *tape) {
			p.file(0, func(b *storage.Batch) { b.Samples[0].Reward = 3 })
		}},
		"no such feed": {RuleBatch, func(p *tape) {
			edit(p, events.RunOpenedType, "r", func(d *events.RunOpened) { d.Config.Feeds = d.Config.Feeds[1:] })
		}},
		"no file": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Files = nil })
		}},
		"object lost": {RuleObject, func(p *tape) {
			finished, _ := events.Data[events.RolloutFinished](p.log[p.find(events.RolloutFinishedType, "g000001-0")])
			if err := p.store.Delete(p.t.Context(), finished.Trajectory.Key); err != nil {
				p.t.Fatal(err)
			}
		}},
		"object changed": {RuleObject, func(p *tape) {
			finished, _ := events.Data[events.RolloutFinished](p.log[p.find(events.RolloutFinishedType, "g000001-0")])
			if err := p.store.Put(p.t.Context(), finished.Trajectory.Key, []byte("something else")); err != nil {
				p.t.Fatal(err)
			}
		}},
		"decided on the future": {RuleDecision, func(p *tape) {
			e := &p.log[p.find(events.GroupCompletedType, "g000001")]
			e.AsOf, e.DecidedAt = e.Seq, e.DecidedAt.AddDate(2026, 0, 0)
		}},
		"fork of other turns": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutCopiedType, "g000003-0",
				func(d *events.RolloutCopied) { d.Turns[0].Content = "never said" })
		}},
		"fork of another answer": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutCopiedType, "g000003-0",
				func(d *events.RolloutCopied) { d.Tools[0].Runner = "another" })
		}},
		"fork that begins without its turns": {RuleTurns,
			func(p *tape) { p.remove(events.RolloutCopiedType, "g000003-0") }},
		"fork of too few turns": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutStartedType, "g000003-0", func(d *events.RolloutStarted) { d.Origin.Turn = 1 })
		}},
		"turns of another rollout, but no fork": {RuleTurns, func(p *tape) {
			edit(p, events.RolloutStartedType, "g000003-0", func(d *events.RolloutStarted) { d.Origin = nil })
		}},
		"turn before the verdict on a step": {RuleTurns,
			func(p *tape) { p.remove(events.StepScoredType, "g000004-0") }},
		"verdict on a step that has not ended": {RuleTurns, func(p *tape) {
			edit(p, events.StepScoredType, "g000004-0", func(d *events.StepScored) { d.Step = 1 })
		}},
		"step that ended after other turns": {RuleTurns, func(p *tape) {
			edit(p, events.StepFinishedType, "g000004-0", func(d *events.StepFinished) { d.Turns = 3 })
		}},
		"end before the verdict on the last step": {RuleTurns, func(p *tape) {
			p.state(events.RolloutFinishedType, "g000004-0", "0", events.RolloutFinished{Task: "t", Turns: 2, Steps: 2})
		}},
		"more steps than there were": {RuleTurns, func(p *tape) {
			p.state(events.StepScoredType, "g000004-0", "1", events.StepScored{Step: 1})
			p.state(events.RolloutFinishedType, "g000004-0", "0", events.RolloutFinished{Task: "t", Turns: 2, Steps: 3})
		}},
		"rollout that nobody started": {RuleLedger, func(p *tape) {
			p.state(events.RolloutAnnotatedType, "g000007-0", "x", events.RolloutAnnotated{Text: "?"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodRun(t)
			c.plant(p)
			report := p.check()
			if !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Rule == c.rule }) {
				t.Errorf("not found; the findings are %v", report.Findings)
			}
			if c.rule == RuleDuplicate && report.Duplicates == 0 {
				t.Error("the duplicate was not counted")
			}
		})
	}
}
