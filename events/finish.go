package events

import "slices"

// Why a turn ended, whatever the server calls it; see package inference/vocabulary. A turn that ran elsewhere may have none.
const (
	FinishStop       = "stop"       // the model ended it
	FinishToolCalls  = "tool_calls" // the model ended it with calls of tools
	FinishLength     = "length"     // a limit cut it
	FinishRepetition = "repetition" // the server cut it, as it repeated itself
	FinishFiltered   = "filtered"   // the server cut it for what it says
	FinishAborted    = "aborted"    // the server gave it up to take up new weights: no turn
	FinishFailed     = "error"      // the server failed within it, or was stopped: no turn
	FinishUnknown    = "unknown"    // the server does not say, or in a word that nobody knows
)

// Finishes are the values of TurnSampled.FinishReason.
var Finishes = []string{FinishStop, FinishToolCalls, FinishLength, FinishRepetition, FinishFiltered, FinishUnknown}

// KnownFinish reports whether a turn's finish reason is one of them, or none: that of a turn that ran elsewhere, whose end nobody states.
func KnownFinish(reason string) bool { return reason == "" || slices.Contains(Finishes, reason) }

// Cut reports whether the turn did not end where the model ended it, so that a call in it may be half of one. What has no reason counts as ended.
func (t *TurnSampled) Cut() bool {
	return t.FinishReason != "" && t.FinishReason != FinishStop && t.FinishReason != FinishToolCalls
}

// Unoffered takes the calls out of a turn that was offered no tools: nobody would answer them, and text that looks like one is text.
func (t *TurnSampled) Unoffered() {
	t.ToolCalls = nil
	t.Lacks = slices.DeleteFunc(t.Lacks, func(lack string) bool { return lack == LackTools })
}

// Untold reports whether a rollout stopped for what may be the server's doing, so that its reward is not the model's: it is not trained on.
func Untold(stopReason string) bool {
	return stopReason == StopUnread || stopReason == StopUnknown || stopReason == StopRefused
}
