package runfile

import (
	"regexp"
)

// token is what may stand between two dots of a subject, and in an object key.
var token = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ValidToken reports whether s may be a run, entity or route name.
func ValidToken(s string) bool { return token.MatchString(s) }
