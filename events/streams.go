package events

import (
	"strings"
)

// RunStream is the stream that is a run's truth.
func RunStream(run string) string {
	if run == Catalogue {
		return CatalogueStream
	}
	return "RONDO_" + run
}

// RunOfStream is the inverse of RunStream.
func RunOfStream(stream string) (run string, ok bool) {
	switch stream {
	case CatalogueStream:
		return Catalogue, true
	case IntakeStream, DeadStream:
		return "", false
	}
	return strings.CutPrefix(stream, "RONDO_")
}

// Names of the fixed streams.
const (
	CatalogueStream = "RONDO"
	IntakeStream    = "RONDO_IN"
	DeadStream      = "RONDO_DEAD"
)
