while :; do
	for question in /tmp_workspace/ask/*; do
		[ -f "$question" ] || continue
		name=${question##*/}
		number=$(awk -v name="$(head -c 100 "$question" | head -n 1)" '$1 == name { print $2 }' articles.txt)
		echo "${number:-0}" >"/tmp_workspace/reply/.$name" && mv "/tmp_workspace/reply/.$name" "/tmp_workspace/reply/$name"
		rm -f "$question"
	done
	sleep 0.1
done
