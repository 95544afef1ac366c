package archiver

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

const (
	// A store is listed more and more rarely: a new plane's is empty at first, and grows fast.
	measureFirst = 5 * time.Second
	measureMost  = 10 * time.Minute
	// measureShare is how much longer than a listing the rest behind it is.
	measureShare = 20
)

// stored is how large the store is.
type stored struct{ bytes, objects *prometheus.GaugeVec }

func newStored(r prometheus.Registerer) (s stored, err error) {
	s.bytes, err = pipeline.ShareMetric(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rondo_store_bytes",
		Help: "Bytes of the objects below a prefix of the store, by the archiver's last listing.",
	}, []string{"prefix"}))
	if err != nil {
		return s, err
	}
	s.objects, err = pipeline.ShareMetric(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rondo_store_objects", Help: "Objects below a prefix of the store, by the archiver's last listing.",
	}, []string{"prefix"}))
	return s, err
}

// measure lists the store from time to time. Each archiver does: more than one is rare, and a
// listing is a small part of its time.
func (s stored) measure(ctx context.Context, store storage.Store) {
	for wait := measureFirst; ; wait = min(2*wait, measureMost) {
		began := time.Now()
		s.list(ctx, store)
		if !retry.Sleep(ctx, max(wait, measureShare*time.Since(began))) {
			return
		}
	}
}

// list measures once. A listing that breaks off says nothing.
func (s stored) list(ctx context.Context, store storage.Store) {
	bytes, objects := map[string]int64{}, map[string]int64{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return
		}
		prefix, _, _ := strings.Cut(info.Key, "/")
		bytes[prefix] += info.Size
		objects[prefix]++
	}
	for prefix := range bytes {
		s.bytes.WithLabelValues(prefix).Set(float64(bytes[prefix]))
		s.objects.WithLabelValues(prefix).Set(float64(objects[prefix]))
	}
}
