package runfile

import "time"

// TurnTimeout bounds one turn at an inference server. What is 0 has its default.
type TurnTimeout struct {
	// FirstByte bounds the time from the request to the first byte of its answer; 0 is Whole. Turns
	// are not streamed, so a server mostly sends it when all of the turn is sampled.
	FirstByte Duration `json:"first_byte,omitempty" yaml:"first_byte" absent:"the time of the whole turn"`
	// BetweenBytes bounds the silence within an answer; 0 is DefaultBetweenBytes, and Whole within
	// a stream, as a server may pause.
	BetweenBytes Duration `json:"between_bytes,omitempty" yaml:"between_bytes" absent:"the default"`
	// Whole bounds the turn; 0 is DefaultTurn. The rollout's time bounds it, too.
	Whole Duration `json:"whole,omitempty" yaml:"whole" absent:"the default"`
}

// Defaults of TurnTimeout, and its most: the deliveries of an input, and the servers of a harness,
// are made for turns of hours.
const (
	DefaultTurn         = time.Hour
	DefaultBetweenBytes = 2 * time.Minute
	maxTurn             = 24 * time.Hour
)

// TurnTimeouts are the bounds of a turn, with their defaults but for BetweenBytes, whose
// default depends on the answer.
func (l Limits) TurnTimeouts() TurnTimeout {
	t := l.TurnTimeout
	if t.Whole == 0 {
		t.Whole = max(Duration(DefaultTurn), t.FirstByte, t.BetweenBytes)
	}
	if t.FirstByte == 0 {
		t.FirstByte = t.Whole
	}
	return t
}

func (l Limits) validateTurnTimeout(check func(ok bool, format string, args ...any)) {
	whole := l.TurnTimeouts().Whole
	for _, key := range []struct {
		name  string
		value Duration
	}{{"first_byte", l.TurnTimeout.FirstByte}, {"between_bytes", l.TurnTimeout.BetweenBytes},
		{"whole", l.TurnTimeout.Whole}} {
		value := time.Duration(key.value)
		check(value >= 0 && value <= maxTurn, "limits.turn_timeout.%s %s: must be 0 to %s; 0 is the default", key.name,
			value, maxTurn)
		check(key.value <= whole, "limits.turn_timeout.%s %s: must be at most limits.turn_timeout.whole (%s)", key.name,
			value, time.Duration(whole))
	}
	check(l.TurnTimeout.Whole <= l.Timeout,
		"limits.turn_timeout.whole %s: must be at most limits.timeout (%s), which ends the rollout before",
		time.Duration(l.TurnTimeout.Whole), time.Duration(l.Timeout))
}
