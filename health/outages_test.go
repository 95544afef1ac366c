package health

import (
	"cmp"
	"log/slog"
	"testing"
)

// TestOutageSaysHowItIsNow: an outage that goes on began when it began, and says what
// is wrong at this moment.
func TestOutageSaysHowItIsNow(t *testing.T) {
	b, err := newOutages(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.set(ServerAway, Outage{Of: "http://a", Reason: "1 request failed in a row"})
	began := b.open[outageKey{ServerAway, "http://a"}]
	for _, do := range []string{"see to its disk", ""} {
		b.set(ServerAway, Outage{Of: "http://a", Reason: "5 requests failed in a row", Do: do})
		now := b.open[outageKey{ServerAway, "http://a"}]
		if now.Reason != "5 requests failed in a row" || now.Since != began.Since ||
			now.Do != cmp.Or(do, began.Do) || now.Kind != ServerAway {
			t.Errorf("it is %+v, and began as %+v", now, began)
		}
	}
}
