package s3

import (
	"time"

	"github.com/minio/minio-go/v7"
)

// Servers of tests fail on purpose, and are well again at once: the waits are
// shorter, and the tries as many.
func init() {
	tryAgain.First, tryAgain.Most = 5*time.Millisecond, 50*time.Millisecond
	minio.DefaultRetryUnit, minio.DefaultRetryCap = 5*time.Millisecond, 50*time.Millisecond
}
