# Live animal: in July and August live animals wait for cooler hours, at no charge but the handling.
r2508() {
	case $m in
	7 | 8) p=$((p + 20)) ;;
	esac
}
