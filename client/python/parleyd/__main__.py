import parleyd

parleyd.daemon()
