package intake

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestIntakeBeginsAgain: a power cut took the last messages of the intake's stream, whose facts are
// on the log, and other messages come with their sequences. They are facts of their own.
func TestIntakeBeginsAgain(t *testing.T) {
	log := house(t)
	remark := func(text string) {
		stop := start(t, log)
		outsider{t, log, "r"}.must(events.FeedbackRecordedType,
			"g000001-0", events.FeedbackRecorded{Signal: events.SignalFollow, Text: text})
		stop()
	}
	remark("first")
	if err := log.JetStream().DeleteStream(t.Context(), events.IntakeStream); err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	remark("second")
	if all := servicetest.All(t, log, "r", events.FeedbackRecordedType); len(all) != 2 {
		t.Errorf("the log has %v", servicetest.IDs(all))
	}
}
