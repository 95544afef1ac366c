package fleet

import "time"

// streaming is what is known of a server's streams. A turn without tokens cannot be trained on, so
// a server whose streams lack them is asked for whole answers, unless these lack them, too.
type streaming int

const (
	streamsMaybe    streaming = iota
	streamsNot                // it refuses to, or its chunks cannot be joined
	streamsTextOnly           // a stream of it had no usable tokens
	streamsAsWell             // a whole answer of it had none either
)

// streams reports whether a server is asked for a stream. One that did not stream may do so later,
// and that it does not costs no turn.
func (f *Fleet) streams(at target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return at.stream == streamsMaybe || at.stream == streamsAsWell ||
		at.stream == streamsNot && time.Since(at.noStreamAt) > knownFor
}

// noStreams notes that a server does not stream.
func (f *Fleet) noStreams(at target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.noStreamAt = time.Now()
	f.learnStream(at, streamsNot, "it does not stream")
}

// learnTokens notes whether an answer had usable tokens. A whole one that nobody follows may be one
// of a request that wants none.
func (f *Fleet) learnTokens(at target, streamed, had, followed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch known := at.stream; {
	case streamed && !had && known != streamsAsWell, !streamed && had && known == streamsAsWell:
		f.learnStream(at, streamsTextOnly, "its stream had no usable tokens")
	case !streamed && !had && followed && known != streamsNot:
		f.learnStream(at, streamsAsWell, "")
	}
}

// learnStream notes what is known of a server's streams, and why it is asked for whole
// answers. The caller holds mu.
func (f *Fleet) learnStream(at target, s streaming, why string) {
	if at.stream != s && why != "" {
		f.opts.Logger.Info("whole answers asked for", "endpoint", withoutPassword(at.url), "reason", why)
	}
	at.stream = s
}
