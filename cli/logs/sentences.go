package logs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
)

// Sentence tells an event in one sentence, which may quote what models and programs wrote.
func Sentence(e events.Event) (string, error) {
	tell, ok := tellers[e.Type]
	if !ok {
		return "", fmt.Errorf("type %s is of a newer version", e.Type)
	}
	return tell(e)
}

// tellers has one for each type of event.
var tellers = map[events.Type]func(events.Event) (string, error){
	events.RunOpenedType: teller(func(d events.RunOpened) string {
		return fmt.Sprintf("the run was opened: policy %s at version %d, %s, groups of %d",
			d.Config.Policy, d.BeginsAt(), app.Plural(len(d.Config.Tasks), "task"), d.Config.GroupSize)
	}),
	events.RunPausedType: teller(func(d events.RunPaused) string { return "the run was paused" + because(d.Reason) }),
	events.RunResumedType: teller(func(d events.RunResumed) string {
		return "the run was resumed" +
			because(d.Reason)
	}),
	events.RunClosedType: teller(func(d events.RunClosed) string { return "the run was closed" + because(d.Reason) }),

	events.GroupOpenedType: teller(func(d events.GroupOpened) string {
		return fmt.Sprintf("the group was opened: %s of task %s, policy version %d",
			app.Plural(d.Size, "rollout"), d.Task, d.PolicyVersion)
	}),
	events.GroupCompletedType: teller(groupCompleted),
	events.GroupDroppedType: teller(func(d events.GroupDropped) string {
		if d.Reason == events.DropStale {
			return fmt.Sprintf("feed %s dropped the group: it is %s old", d.Feed,
				app.Plural(int(d.Staleness), "version"))
		}
		return fmt.Sprintf("feed %s dropped the group by its filter %s%s", d.Feed, d.Filter, because(d.Detail))
	}),

	events.RolloutStartedType: teller(func(d events.RolloutStarted) string {
		return fmt.Sprintf("started on task %s with policy version %d", d.Task, d.PolicyVersion)
	}),
	events.PieceSampledType: teller(func(d events.PieceSampled) string {
		return fmt.Sprintf("turn %d is under way: %s behind %d", d.Turn, app.Plural(len(d.TokenIDs), "token"), d.Offset)
	}),
	events.TurnSampledType:     teller(turnSampled),
	events.ToolsCompletedType:  teller(toolsCompleted),
	events.RolloutObservedType: teller(observed),
	events.StepFinishedType: teller(func(d events.StepFinished) string {
		return fmt.Sprintf("stage %d ended behind %s: %s", d.Step, app.Plural(d.Turns, "turn"), d.StopReason)
	}),
	events.StepScoredType: teller(func(d events.StepScored) string {
		return fmt.Sprintf("stage %d was scored%s%s", d.Step, parts(d.Components), forfeit(d.Forfeit))
	}),
	events.RolloutFinishedType: teller(func(d events.RolloutFinished) string {
		sampled := app.Plural(d.AllSampled(), "token") + " sampled"
		if d.TextOnly {
			sampled = "text only"
		}
		return fmt.Sprintf("the episode ended (%s) behind %s, %s", d.StopReason, app.Plural(d.Turns, "turn"), sampled)
	}),
	events.RolloutRatedType: teller(func(d events.RolloutRated) string {
		if d.Failed != "" {
			return fmt.Sprintf("%s could not rate it: %s", d.By, d.Failed)
		}
		return d.By + " rated it" + parts(d.Components)
	}),
	events.RolloutScoredType: teller(func(d events.RolloutScored) string {
		flags := ""
		if len(d.Flags) > 0 {
			flags = "; the scorer remarks: " + strings.Join(d.Flags, "; ")
		}
		return fmt.Sprintf("reward %.4g%s%s%s", d.Reward, parts(d.Components), forfeit(d.Forfeit), flags)
	}),
	events.RolloutFailedType: teller(func(d events.RolloutFailed) string {
		return fmt.Sprintf("failed at stage %s (%s), so it has no reward%s", d.Stage, d.Class, because(d.Message))
	}),
	events.RolloutRetriedType: teller(func(d events.RolloutRetried) string {
		if d.Behind > 0 {
			return fmt.Sprintf("its agent was lost behind %s (%s) and is started anew%s", app.Plural(d.Behind, "turn"),
				d.Class, because(d.Message))
		}
		return fmt.Sprintf("try %d failed at stage %s (%s) and is made again%s", d.Try, d.Stage,
			d.Class, because(d.Message))
	}),
	events.RolloutInvalidatedType: teller(func(d events.RolloutInvalidated) string {
		return "invalidated" +
			because(d.Reason)
	}),
	events.RolloutAnnotatedType: teller(annotated),
	events.RolloutForkedType: teller(func(d events.RolloutForked) string {
		return fmt.Sprintf("forked %s behind turn %d", app.Plural(d.Count, "time"), d.Turn)
	}),
	events.RolloutCopiedType: teller(func(d events.RolloutCopied) string {
		return "took over " + app.Plural(len(d.Turns), "turn") + " of its origin"
	}),
	events.RolloutHintedType: teller(func(d events.RolloutHinted) string {
		return fmt.Sprintf("%s gave %s", d.By, app.Plural(len(d.Hints), "hint"))
	}),
	events.TeacherScoredType: teller(func(d events.TeacherScored) string {
		if d.Failed != "" {
			return fmt.Sprintf("teacher %s failed: %s", d.Teacher, d.Failed)
		}
		return fmt.Sprintf("teacher %s scored %s", d.Teacher, app.Plural(d.Tokens, "token"))
	}),
	events.WorkspaceCalledType:   teller(workspaceCalled),
	events.WorkspaceAnsweredType: teller(workspaceAnswered),

	events.CaptureBegunType: teller(func(d events.CaptureBegun) string {
		return fmt.Sprintf("call %s of rollout %s began", d.Call, d.Rollout)
	}),
	events.CaptureRecordedType: teller(func(d events.CaptureRecorded) string {
		return fmt.Sprintf("call %s of rollout %s was recorded", d.Call, d.Rollout)
	}),
	events.CaptureIncompleteType: teller(func(d events.CaptureIncomplete) string {
		return fmt.Sprintf("the record of rollout %s is not complete", d.Rollout)
	}),
	events.CaptureRetiredType: teller(func(d events.CaptureRetired) string {
		return fmt.Sprintf("the record of rollout %s was taken in", d.Rollout)
	}),

	events.QuerySubmittedType: teller(func(d events.QuerySubmitted) string {
		return fmt.Sprintf("a query was submitted, with task %s: %s", d.Task, quote(d.Instruction))
	}),
	events.FeedbackRecordedType: teller(func(d events.FeedbackRecorded) string {
		reward := ""
		if score, ok := d.Score(); ok {
			reward = fmt.Sprintf(", reward %.4g", score)
		}
		final := ""
		if d.Repository != nil {
			final = ", with the user's final files"
		}
		return fmt.Sprintf("feedback: %s%s%s%s", d.Signal, reward, final, because(d.Text))
	}),

	events.MarkRecordedType: teller(func(d events.MarkRecorded) string {
		if d.Marked {
			return "marked by a person" + because(d.Text)
		}
		return "no longer marked" + because(d.Text)
	}),

	events.BatchReadyType: teller(func(d events.BatchReady) string {
		return fmt.Sprintf("batch %d is ready: %s, %d tokens sampled, mean reward %.3g, %s old", d.Step,
			app.Plural(d.Samples, "sample"), d.Sampled, d.RewardMean, app.Plural(int(d.Staleness), "version"))
	}),
	events.BatchConsumedType: teller(func(d events.BatchConsumed) string {
		return fmt.Sprintf("batch %d was trained on", d.Step)
	}),
	events.BatchCheckpointedType: teller(func(d events.BatchCheckpointed) string {
		return fmt.Sprintf("the trainer has a checkpoint of step %d", d.Step)
	}),
	events.BatchRewoundType: teller(func(d events.BatchRewound) string {
		return fmt.Sprintf("the trainer went back to step %d", d.ToStep)
	}),

	events.WeightsSubmittedType: teller(func(d events.WeightsSubmitted) string {
		return fmt.Sprintf("version %d was submitted, trained through step %d of run %s", d.Version, d.ThroughStep,
			d.Run)
	}),
	events.WeightsPublishedType: teller(func(d events.WeightsPublished) string {
		return fmt.Sprintf("version %d of policy %s was published, trained through step %d of run %s",
			d.Version, d.Policy, d.ThroughStep, d.Run)
	}),
	events.WeightsRejectedType: teller(func(d events.WeightsRejected) string {
		return fmt.Sprintf("version %d was rejected: %s", d.Version, d.Reason)
	}),
	events.WeightsActivatedType: teller(func(d events.WeightsActivated) string {
		if d.Lost {
			return fmt.Sprintf("replica %s lost version %d", d.Replica, d.Version)
		}
		return fmt.Sprintf("replica %s samples with version %d", d.Replica, d.Version)
	}),
	events.WeightsPromotedType: teller(func(d events.WeightsPromoted) string {
		switch {
		case d.RolledBack > 0:
			return fmt.Sprintf("version %d was rolled back, and version %d is promoted again", d.RolledBack, d.Version)
		case d.Share > 0:
			return fmt.Sprintf("version %d has a share of %.3g of the requests", d.Version, d.Share)
		}
		return fmt.Sprintf("version %d was promoted", d.Version)
	}),
	events.WeightsJudgedType: teller(func(d events.WeightsJudged) string {
		return fmt.Sprintf("the %s judged version %d against %d: %s%s", d.Stage, d.Version, d.Against, d.Verdict,
			because(strings.Join(d.Reasons, "; ")))
	}),

	events.CapacityMeasuredType: teller(func(d events.CapacityMeasured) string {
		return fmt.Sprintf("the inference servers take %s at once", app.Plural(d.Turns, "turn"))
	}),
	events.StageWaitedType: teller(func(d events.StageWaited) string {
		return fmt.Sprintf("waited %s for %s", d.Until.Sub(d.Since).Round(time.Second), d.Outage)
	}),

	events.RepoChangedType: teller(func(events.RepoChanged) string { return "the repository changed" }),
	events.IndexUpdatedType: teller(func(d events.IndexUpdated) string {
		return fmt.Sprintf("the index of %s was updated", d.Repo)
	}),

	events.DeadLetteredType: teller(func(d events.DeadLettered) string {
		return fmt.Sprintf("message %d of stream %s was given up: %s", d.Sequence, d.Stream, d.Reason)
	}),
	events.SegmentSealedType: teller(func(d events.SegmentSealed) string {
		return fmt.Sprintf("events %d to %d were archived", d.First, d.Last)
	}),
	events.LogForgottenType: teller(func(d events.LogForgotten) string {
		return "the log was forgotten" +
			because(d.Reason)
	}),
	events.LogPurgedType: teller(func(d events.LogPurged) string {
		return fmt.Sprintf("%d events were purged from the stream", d.Events)
	}),
}

// teller makes a teller of a function that tells a payload.
func teller[T any](tell func(T) string) func(events.Event) (string, error) {
	return func(e events.Event) (string, error) {
		d, err := events.Data[T](e)
		if err != nil {
			return "", err
		}
		return tell(d), nil
	}
}

func groupCompleted(d events.GroupCompleted) string {
	var rewards []string
	for _, m := range d.Members {
		if m.Failed {
			rewards = append(rewards, "failed")
			continue
		}
		rewards = append(rewards, fmt.Sprintf("%.4g", m.Reward))
	}
	if !slices.ContainsFunc(rewards, func(r string) bool { return r != "failed" }) {
		return "the group is complete: none of its rollouts has a reward"
	}
	return fmt.Sprintf("the group is complete: rewards %s, mean %.4g", strings.Join(rewards, " "), d.Mean)
}

func turnSampled(d events.TurnSampled) string {
	version := fmt.Sprint(d.PolicyVersion)
	if d.PolicyVersion < 0 {
		version = "unknown"
	}
	said := []string{fmt.Sprintf("turn %d, version %s, %s (%s)", d.Turn, version,
		app.Plural(max(len(d.TokenIDs), d.CompletionTokens), "token"), d.FinishReason)}
	if d.Content != "" {
		said = append(said, quote(d.Content))
	}
	for _, call := range d.ToolCalls {
		said = append(said, call.Name+" "+call.Arguments)
	}
	return strings.Join(said, " · ")
}

func toolsCompleted(d events.ToolsCompleted) string {
	said := []string{fmt.Sprintf("tools of turn %d", d.Turn)}
	for _, r := range d.Results {
		end := "done"
		switch {
		case r.ExitCode != nil:
			end = fmt.Sprintf("exit code %d", *r.ExitCode)
		case r.Error:
			end = "an error"
		}
		said = append(said, fmt.Sprintf("%s: %s after %s: %s", r.Name, end,
			milliseconds(r.DurationMS), quote(r.Content)))
	}
	if d.Lost != "" {
		said = append(said, "the sandbox was lost: "+d.Lost)
	}
	return strings.Join(said, " · ")
}

func observed(d events.RolloutObserved) string {
	switch {
	case d.Failed != "":
		return "its environment failed: " + d.Failed
	case d.Done:
		return fmt.Sprintf("its environment ended the episode with reward %.4g", d.Reward)
	}
	said := []string{fmt.Sprintf("its environment answered turn %d", d.Turn)}
	for _, m := range d.Messages {
		said = append(said, quote(m.Content))
	}
	return strings.Join(said, " · ")
}

func annotated(d events.RolloutAnnotated) string {
	text := "annotated"
	if d.Turn != nil {
		text += fmt.Sprintf(" at turn %d", *d.Turn)
	}
	if d.Reward != nil {
		text += fmt.Sprintf(", reward %.4g", *d.Reward)
	}
	return text + because(d.Text)
}

func workspaceCalled(d events.WorkspaceCalled) string {
	switch {
	case len(d.Command) > 0:
		return "its harness runs " + quote(strings.Join(d.Command, " "))
	case d.Path != "":
		return fmt.Sprintf("its harness asks to %s %s", d.Op, d.Path)
	}
	return "its agent is started"
}

func workspaceAnswered(d events.WorkspaceAnswered) string {
	switch {
	case d.Refused != "":
		return "refused: " + d.Refused
	case d.Lost != "":
		return "the sandbox was lost: " + d.Lost
	}
	text := "done"
	if d.ExitCode != nil {
		text = fmt.Sprintf("exit code %d", *d.ExitCode)
	}
	if d.Agent != nil {
		text = "its agent ended, " + text + because(d.Agent.Why)
	}
	if d.TimedOut {
		text += ", as its time was over"
	}
	text += ", after " + milliseconds(d.DurationMS)
	if d.Output != nil && d.Output.Text != "" {
		text += " · " + quote(d.Output.Text)
	}
	return text
}

// because is a reason behind a sentence, "" for none.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func forfeit(f *events.Forfeit) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf(", forfeited (%s): %s", f.Class, f.Message)
}

// parts are what a reward is made of.
func parts(components map[string]float64) string {
	var named []string
	for _, name := range slices.Sorted(maps.Keys(components)) {
		named = append(named, fmt.Sprintf("%s %.4g", name, components[name]))
	}
	if len(named) == 0 {
		return ""
	}
	return " (" + strings.Join(named, ", ") + ")"
}

// quoted is how many bytes of one message are told.
const quoted = 120

func quote(text string) string {
	begins := text[:min(len(text), 4*quoted)]
	said := strings.Join(strings.Fields(strings.ToValidUTF8(begins, "")), " ")
	if cut := len(said) > quoted; cut || len(begins) < len(text) {
		said = strings.ToValidUTF8(said[:min(len(said), quoted)], "") + "…"
	}
	return "“" + said + "”"
}

func milliseconds(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}
