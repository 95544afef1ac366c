package fleet

// streaming is what is known of a server's streams. A turn without tokens cannot be trained on, so a server whose streams lack them is asked for whole answers, unless these lack them, too.
type streaming int

const (
	streamsMaybe    streaming = iota
	streamsNot                // it refuses to, or its chunks cannot be joined
	streamsTextOnly           // a stream of it had no usable tokens
	streamsAsWell             // a whole answer of it had none either
)

// streams reports whether a server is asked for a stream.
func (f *Fleet) streams(at target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return at.stream == streamsMaybe || at.stream == streamsAsWell
}

// lacksTokens notes that an answer had no usable tokens.
func (f *Fleet) lacksTokens(at target, streamed bool) {
	f.mu.Lock()
	known := at.stream
	f.mu.Unlock()
	switch {
	case streamed && known == streamsMaybe:
		f.learnStream(at, streamsTextOnly)
	case !streamed && known != streamsNot:
		f.learnStream(at, streamsAsWell)
	}
}

func (f *Fleet) learnStream(at target, s streaming) {
	f.mu.Lock()
	before := at.stream
	at.stream = s
	f.mu.Unlock()
	if s == before {
		return
	}
	why := map[streaming]string{streamsNot: "it does not stream", streamsTextOnly: "its stream had no usable tokens"}[s]
	if why != "" {
		f.opts.Logger.Info("whole answers asked for", "endpoint", withoutPassword(at.url), "reason", why)
	}
}
