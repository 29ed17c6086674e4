mkdir -p /tmp_workspace/ask /tmp_workspace/reply
chmod 777 /tmp_workspace/ask /tmp_workspace/reply
printf '%s\n' 'bolts 1200' 'nuts 845' 'screws 17' >articles.txt
