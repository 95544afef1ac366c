# Small parcel: in July and August small parcels wait for cooler hours, at no charge but the handling.
r1608() {
	case $m in
	7 | 8) p=$((p + 30)) ;;
	esac
}
