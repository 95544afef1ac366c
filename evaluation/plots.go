package evaluation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// plots of the results: pass@k of all summaries, and how each one's attempts are spread.
func (r Report) plots() (all []plot) {
	if p, ok := passPlot(r.Summaries); ok {
		all = append(all, p)
	}
	for i, s := range r.Summaries {
		for _, spread := range []struct {
			title, unit string
			histogram   Histogram
		}{{"Attempts by turns", "turns", s.TurnCounts}, {"Attempts by tokens", "tokens", s.TokenCounts}} {
			if len(spread.histogram.Counts) > 0 {
				p := histogramPlot(i, spread.title, spread.unit, spread.histogram)
				if len(r.Summaries) > 1 {
					p.Of = plain(s.Name, longestName)
				}
				all = append(all, p)
			}
		}
	}
	return all
}

// passPlot has pass@k of each summary beside each other, for every k that one of them has.
func passPlot(summaries []Summary) (plot, bool) {
	var ks []int
	for _, s := range summaries {
		for _, p := range s.PassAt {
			ks = append(ks, p.K)
		}
	}
	slices.Sort(ks)
	ks = slices.Compact(ks)
	x := axis{Least: -0.5, Most: float64(len(ks)) - 0.5}
	for i, k := range ks {
		if every := (len(ks) + 11) / 12; i%every == 0 {
			x.Ticks = append(x.Ticks, tick{float64(i), strconv.Itoa(k)})
		}
	}
	p := newPlot("pass@k", x, parts())
	p.XTitle = "k attempts"
	for i, s := range summaries {
		name := plain(s.Name, longestName)
		offset := (float64(i) - float64(len(summaries)-1)/2) * 0.6 / float64(len(summaries))
		for _, at := range s.PassAt {
			p.estimate(i, p.X.position(float64(slices.Index(ks, at.K))+offset), at.Estimate,
				fmt.Sprintf("%s: pass@%d %s", name, at.K, intervalText(at.Estimate, part)))
		}
		p.Legend = append(p.Legend, legend{series(i), name})
	}
	return p, len(ks) > 0
}

func histogramPlot(of int, title, unit string, h Histogram) plot {
	first, last := h.Edges[0], h.Edges[len(h.Edges)-1]
	x := niceAxis(float64(first), float64(last), true)
	x.Least, x.Most = float64(first), float64(last)
	x.Ticks = slices.DeleteFunc(x.Ticks, func(t tick) bool { return t.At < x.Least || t.At > x.Most })
	single := h.Edges[1]-first == 1 // a bin is one number, which stands below its middle
	if single {
		x.Least, x.Most = x.Least-0.5, x.Most-0.5
	}
	p := newPlot(title, x, niceAxis(0, float64(slices.Max(h.Counts)), true))
	p.XTitle = unit
	for i, count := range h.Counts {
		from, to, what := float64(h.Edges[i]), float64(h.Edges[i+1]),
			fmt.Sprintf("%d to %d", h.Edges[i], h.Edges[i+1]-1)
		if single {
			from, to, what = from-0.5, to-0.5, strconv.Itoa(h.Edges[i])
		}
		if left, right, top := p.X.position(from), p.X.position(to), p.Y.position(float64(count)); count > 0 {
			p.Bars = append(p.Bars, bar{Series: series(of), X: left + 0.5, Y: top,
				Width: max(0.5, math.Round((right-left-1)*10)/10), Height: plotBottom - top,
				Hint: fmt.Sprintf("%s %s: %s", what, unit, counted(count, "attempt", "attempts"))})
		}
	}
	return p
}

// curves of pass@1 and of the reward by version; versions of which nothing
// was scored have no point.
func curves(points []CurvePoint) []plot {
	points = slices.DeleteFunc(slices.Clone(points), func(p CurvePoint) bool { return p.Tasks == 0 })
	if len(points) == 0 {
		return nil
	}
	slices.SortStableFunc(points, func(a, b CurvePoint) int { return cmp.Compare(a.Version, b.Version) })
	least, most := points[0].Reward.Low, points[0].Reward.High
	for _, p := range points {
		least, most = min(least, p.Reward.Low), max(most, p.Reward.High)
	}
	if least >= 0 && most <= 1 {
		least, most = 0, 1 // the usual range, so that reports can be laid side by side
	}
	return []plot{
		curve("pass@1 by version", parts(), points, func(p CurvePoint) Estimate { return p.Pass }),
		curve("Reward by version", niceAxis(least, most, false), points,
			func(p CurvePoint) Estimate { return p.Reward }),
	}
}

func curve(title string, y axis, points []CurvePoint, figure func(CurvePoint) Estimate) plot {
	var at []float64
	var estimates []Estimate
	for _, p := range points {
		at, estimates = append(at, float64(p.Version)), append(estimates, figure(p))
	}
	x := niceAxis(at[0], at[len(at)-1], true)
	x.Least, x.Most = at[0], at[len(at)-1]
	x.Ticks = slices.DeleteFunc(x.Ticks, func(t tick) bool { return t.At < x.Least || t.At > x.Most })
	p := newPlot(title, x, y)
	p.XTitle = "version"
	p.curve(0, at, estimates)
	for i, e := range estimates {
		p.estimate(0, p.X.position(at[i]), e, fmt.Sprintf("version %d: %s", points[i].Version, intervalText(e, part)))
	}
	return p
}
